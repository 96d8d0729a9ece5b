//! The designs that can be named: kernels, single patches of the 2022 series, and the pcp-buddy
//! proposals.
//!
//! A kernel is every switch that it is new enough for and that it has not dropped again, and
//! nothing more. What no switch is about is in all of them as in the newest, above all who may go
//! below a watermark: until 6.3 that was said in other flags, to nearly the same effect. What else
//! each preset has otherwise than its source is on one page, `docs/threads/deviations.md`.

use crate::kernel::{Kernel, KernelOutside};
use crate::switches::{Switch, Switches};

/// A named set of switches.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name used on the command line.
    pub name: &'static str,
    /// Another name for the same thing.
    pub alias: Option<&'static str>,
    /// What it is, in one sentence.
    pub summary: &'static str,
    /// The changes it contains.
    pub switches: Switches,
}

const fn kernel(major: u16, minor: u16) -> Switches {
    Kernel::new(major, minor).all_switches()
}

// The 2022 series as first posted: the search over the narrowed range of lists starts over where
// all lists end, and begins behind the list that overflowed.
const V5_17_1: Switches = kernel(5, 17).with(Switch::RightBuddyPrefetch);
const V5_17_2: Switches = V5_17_1.with(Switch::PindexRange);
const V5_17_3: Switches = V5_17_2.with(Switch::SimpleSelection);
const V5_17_4: Switches = V5_17_3.with(Switch::SinglePass);
// The RFC's single call for a whole drain takes the chunking of 6.19 out again, but not that of
// what decays.
const PCP_BUDDY: Switches = Kernel::NEWEST
    .all_switches()
    .without(Switch::ChunkedDrain)
    .with(Switch::PageblockData)
    .with(Switch::Ownership)
    .with(Switch::Route)
    .with(Switch::Merge)
    .with(Switch::WholeFirst)
    .with(Switch::FragmentTail)
    .with(Switch::Recover)
    .with(Switch::Claim)
    .with(Switch::Fragment);
// Three repairs of what reviewers found, three of what was found here, and the chunking of 6.19,
// which nobody in the thread asked for either.
const PCP_BUDDY_FIXED: Switches = PCP_BUDDY
    .with(Switch::CmaPhases)
    .with(Switch::RemoteList)
    .with(Switch::OwnedByType)
    .with(Switch::ChunkedDrain)
    .with(Switch::ForeignClaim)
    .with(Switch::MergeOnce)
    .with(Switch::CountDrained);

/// Every preset, oldest first.
#[must_use]
pub const fn presets() -> &'static [Preset] {
    const fn preset(name: &'static str, summary: &'static str, switches: Switches) -> Preset {
        Preset { name, alias: None, summary, switches }
    }
    const PRESETS: &[Preset] = &[
        preset(
            "5.17",
            "Linux 5.17: high-order pages on the PCP, before the 2022 follow-up.",
            kernel(5, 17),
        ),
        preset(
            "5.17+1",
            "5.17 with patch 1 of the 2022 series: prefetch the right buddy.",
            V5_17_1,
        ),
        preset(
            "5.17+2",
            "5.17 with patches 1 and 2 as first posted: track the range of active lists.",
            V5_17_2,
        ),
        preset("5.17+3", "5.17 with patches 1 to 3: simpler selection of lists.", V5_17_3),
        preset("5.17+4", "5.17 with patches 1 to 4: one pass under the zone lock.", V5_17_4),
        preset(
            "5.18",
            "Linux 5.18: all five patches and the one that review added; high-order pages no \
             longer linger.",
            kernel(5, 18),
        ),
        preset(
            "6.18",
            "Linux 6.18, the kernel that recorded the traces: self-tuning high mark.",
            kernel(6, 18),
        ),
        preset(
            "7.1",
            "Linux 7.1: drains in chunks of one batch; atomic high-order requests refill no list.",
            kernel(7, 1),
        ),
        preset(
            "7.2",
            "Linux 7.2: contiguous order-0 pages freed in the largest chunks.",
            kernel(7, 2),
        ),
        Preset {
            name: "7.3",
            alias: Some("vanilla"),
            summary: "Linux 7.3, the newest: atomic high-order requests use their reserve from \
                      the first attempt on.",
            switches: kernel(7, 3),
        },
        preset(
            "pcp-buddy",
            "The RFC as posted, on the newest kernel: CPUs own pageblocks, split and merge them \
             on the PCP.",
            PCP_BUDDY,
        ),
        preset(
            "pcp-buddy-fixed",
            "The RFC with its defects repaired: those that its reviewers found, and those found \
             here.",
            PCP_BUDDY_FIXED,
        ),
    ];
    PRESETS
}

/// A design to build: its name as given, and its switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Design {
    /// The text it was made from: `PRESET[,+SWITCH|,-SWITCH]...`.
    pub name: String,
    /// The changes it contains.
    pub switches: Switches,
}

impl Design {
    /// Reads `PRESET[,+SWITCH|,-SWITCH]...`, for example `pcp-buddy-fixed,-merge`. A kernel's
    /// version is a preset too, from [`Kernel::OLDEST`] to [`Kernel::NEWEST`]: `6.12`.
    ///
    /// Turning a switch on also turns on what it needs; turning one off also turns off what needs
    /// it.
    ///
    /// ```
    /// use freehold_classic::{Design, Switch};
    ///
    /// let design = Design::parse("vanilla,-contig-free").unwrap();
    /// assert!(!design.switches.has(Switch::ContigFree));
    /// assert!(Design::parse("6.12,+chunked-drain").is_ok());
    /// assert!(Design::parse("5.15").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// See [`DesignError`].
    pub fn parse(text: &str) -> Result<Self, DesignError> {
        let mut parts = text.split(',').map(str::trim);
        let start = parts.next().unwrap_or_default();
        let preset = switches_of(start)?;
        let mut switches = preset;
        for part in parts {
            let (on, name) = match (part.strip_prefix('+'), part.strip_prefix('-')) {
                (Some(name), _) => (true, name),
                (_, Some(name)) => (false, name),
                _ => return Err(DesignError::NoSign(part.into())),
            };
            let switch =
                Switch::from_name(name).ok_or_else(|| DesignError::UnknownSwitch(name.into()))?;
            // Another sign of the text may have changed it already.
            if switches.has(switch) == on && preset.has(switch) == on {
                return Err(DesignError::AsItIs(part.into(), start.into()));
            }
            switches = if on { turn_on(switches, switch) } else { turn_off(switches, switch) };
        }
        Ok(Self { name: text.into(), switches })
    }
}

/// What stands before the first comma: a preset, or a kernel's version.
fn switches_of(name: &str) -> Result<Switches, DesignError> {
    let known = |preset: &&Preset| preset.name == name || preset.alias == Some(name);
    if let Some(preset) = presets().iter().find(known) {
        return Ok(preset.switches);
    }
    match Kernel::parse(name) {
        Some(kernel) => Ok(kernel.switches()?),
        None => Err(DesignError::UnknownPreset(name.into())),
    }
}

fn turn_on(switches: Switches, switch: Switch) -> Switches {
    switch.needs().iter().fold(switches.with(switch), |switches, &needs| turn_on(switches, needs))
}

fn turn_off(switches: Switches, switch: Switch) -> Switches {
    Switch::ALL
        .iter()
        .filter(|other| other.needs().contains(&switch) && switches.has(**other))
        .fold(switches.without(switch), |switches, &other| turn_off(switches, other))
}

/// Why a text names no design.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DesignError {
    /// No preset of that name.
    #[error("no engine '{0}'")]
    UnknownPreset(String),
    /// A kernel that is not here.
    #[error(transparent)]
    Kernel(#[from] KernelOutside),
    /// No switch of that name.
    #[error("no switch '{0}'")]
    UnknownSwitch(String),
    /// A switch without `+` or `-` before it.
    #[error("'{0}' needs a sign: write '+{0}' or '-{0}'")]
    NoSign(String),
    /// A switch that the preset has, or has not, anyway.
    #[error("'{0}' changes nothing of {1}")]
    AsItIs(String, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_parses_and_contains_what_its_switches_need() {
        for preset in presets() {
            assert_eq!(Design::parse(preset.name).unwrap().switches, preset.switches);
            for switch in preset.switches.iter() {
                let has = |needs: &Switch| preset.switches.has(*needs);
                assert!(switch.needs().iter().all(has), "{}: {switch}", preset.name);
            }
        }
        let newest = Kernel::NEWEST.to_string();
        assert_eq!(
            Design::parse("vanilla").unwrap().switches,
            Design::parse(&newest).unwrap().switches
        );
    }

    #[test]
    fn switches_take_what_depends_on_them_along() {
        use Switch::{AutoHigh, FreeHighHalf, Merge, Ownership, PageblockData, RemoteList, Route};
        let cases: [(&str, &[Switch], &[Switch]); 3] = [
            ("pcp-buddy-fixed,-ownership", &[PageblockData], &[Merge, RemoteList]),
            ("5.18,+remote-list", &[Route, Ownership, PageblockData], &[Merge]),
            // A switch may need two, and each of them takes it along.
            (
                "pcp-buddy,-high-order-pcp",
                &[PageblockData, AutoHigh],
                &[Ownership, Route, FreeHighHalf],
            ),
        ];
        for (name, on, off) in cases {
            let switches = Design::parse(name).unwrap().switches;
            assert!(on.iter().all(|&switch| switches.has(switch)), "{name}");
            assert!(!off.iter().any(|&switch| switches.has(switch)), "{name}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let message = |text| Design::parse(text).unwrap_err().to_string();
        assert_eq!(message("vanila"), "no engine 'vanila'");
        assert_eq!(message("vanilla,-contigfree"), "no switch 'contigfree'");
        assert_eq!(message("vanilla,merge"), "'merge' needs a sign: write '+merge' or '-merge'");
        assert_eq!(message("5.17,-least-drain"), "'-least-drain' changes nothing of 5.17");
        assert_eq!(message("7.2,+contig-free"), "'+contig-free' changes nothing of 7.2");
        assert!(Design::parse("").is_err());
    }
}
