//! What `--list` prints: what can be measured, and of what.

use std::fmt::Write as _;

use serde::Serialize;

use super::engines::{FREEHOLD, Peer};
use super::kind::Kind;
use super::metric::About;
use crate::tables::table::{Style, wrap};

/// A benchmark as `--list --json` has it.
#[derive(Serialize)]
pub struct Entry {
    name: &'static str,
    #[serde(flatten)]
    about: &'static About,
}

pub fn entries(kinds: &[Kind]) -> Vec<Entry> {
    kinds.iter().map(|kind| Entry { name: kind.name(), about: kind.about() }).collect()
}

pub fn catalogue(kinds: &[Kind], style: Style) -> String {
    let mut text = String::new();
    for kind in kinds {
        let about = kind.about();
        let names: Vec<_> = about.metrics.iter().map(|metric| metric.name).collect();
        let _ = writeln!(text, "{}", kind.name().to_uppercase());
        for line in [about.what, &names.join(", ")] {
            let _ = writeln!(text, "  {}", wrap(line, style, "  "));
        }
        text.push('\n');
    }
    text.push_str(&engines(style));
    text
}

/// What can be named after `--engine`.
fn engines(style: Style) -> String {
    let ours = (
        FREEHOLD,
        "this project's: CPUs lease words of 64 frames, and frees go home without a lock"
            .to_owned(),
    );
    let peers = Peer::ALL.map(|peer| {
        let missing = peer
            .missing()
            .map_or_else(String::new, |name| format!(" (needs a build with --features {name})"));
        (peer.name(), format!("{}{missing}", peer.about().summary))
    });
    let designs = (
        "KERNEL[,±SWITCH]...",
        "a design of the kernel's, such as 5.17, vanilla (7.3) or pcp-buddy-fixed,-merge: \
        'freehold engines' lists designs and switches"
            .to_owned(),
    );
    let engines: Vec<_> = std::iter::once(ours).chain(peers).chain([designs]).collect();
    let mut text = "ENGINES\n".to_owned();
    for (name, what) in engines {
        let _ = writeln!(text, "  {}", wrap(&format!("{name}: {what}"), style, "    "));
    }
    text
}
