//! Linux compiled here, with the page allocator as it is, with the RFC's, or with Freehold as a
//! zone's; booted in QEMU, where each counts what its own allocator does under the same loads.

mod boots;
mod foreign;
mod kernel;
mod loads;
mod plant;
mod readers;
mod record;
mod rules;
mod series;
mod source;
mod table;
mod thread;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use self::plant::Plant;
use super::tools::output;
use super::{Arguments, Trouble};
use crate::build;
use crate::qemu::{self, Accelerator, End, Kvm, Machine};

/// Whose page allocator a kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Design {
    Vanilla,
    Rfc,
    Freehold,
    /// Vanilla with or without a thread's patch: the rules of `threads.json` whose names begin so.
    Edited(&'static str),
}

impl Design {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Rfc => "rfc",
            Self::Freehold => "freehold",
            Self::Edited(name) => name,
        }
    }
}

/// Which kernels are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Built {
    /// The source as it came, with counters.
    Vanilla,
    /// With the two patches of the pcp-buddy RFC, from the text of its discussion beside this
    /// repository.
    Rfc,
    /// With Freehold, which is asked before the kernel's own lists.
    Freehold,
    /// Vanilla, freehold and rfc, one after the other, and a table of all.
    All,
    /// Vanilla, and vmalloc with the patches of "Free contiguous order-0 pages efficiently", and as
    /// it was before the regression that these mend.
    Contiguous,
    /// Vanilla, and reclaim without "batched unmap lazyfree large folios during reclamation".
    Lazyfree,
    /// Vanilla, and per-CPU lists without the limit of "Follow-up on high-order PCP caching", and
    /// of order 0 alone.
    HighOrder,
}

impl Built {
    fn designs(self) -> &'static [Design] {
        match self {
            Self::Vanilla => &[Design::Vanilla],
            Self::Rfc => &[Design::Rfc],
            Self::Freehold => &[Design::Freehold],
            Self::All => &[Design::Vanilla, Design::Freehold, Design::Rfc],
            Self::Contiguous => {
                &[Design::Vanilla, Design::Edited("contig-free"), Design::Edited("single-pages")]
            }
            Self::Lazyfree => &[Design::Vanilla, Design::Edited("page-by-page")],
            Self::HighOrder => {
                &[Design::Vanilla, Design::Edited("no-limit"), Design::Edited("order-0-pcp")]
            }
        }
    }

    /// The load that a thread's kernels are built for.
    fn load(self) -> Option<&'static str> {
        match self {
            Self::Contiguous => Some("ranges"),
            Self::Lazyfree => Some("lazyfree"),
            Self::HighOrder => Some("traffic"),
            _ => None,
        }
    }
}

/// What a kernel checks of itself: it is compiled anew for it, into a folder of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(super) enum Check {
    /// The order of locks, and who sleeps that must not.
    Locking,
    /// Each access of compiled C: whether what it names is allocated.
    Kasan,
    /// Each access of compiled C: whether another CPU changes the same place at that moment.
    Kcsan,
}

/// A kernel that is built: whose allocator, and what it checks of itself.
#[derive(Clone, Debug)]
struct Kind {
    design: Design,
    /// In their order, each once.
    checks: Vec<Check>,
    /// What it does without, on purpose.
    plant: Option<Plant>,
    /// Freehold is compiled by Kbuild, with the kernel's own Rust.
    rust: bool,
}

impl Kind {
    fn of(design: Design, checks: &[Check]) -> Result<Self, Trouble> {
        let mut checks = checks.to_vec();
        checks.sort_unstable();
        checks.dedup();
        if checks.ends_with(&[Check::Kasan, Check::Kcsan]) {
            let why = "--checks kasan,kcsan: a kernel has one of them";
            return Err(Trouble::Wrong(why.to_owned()));
        }
        Ok(Self { design, checks, plant: None, rust: false })
    }

    /// With the kernel's own Rust, where it has any of ours.
    fn by_kbuild(self, rust: bool) -> Self {
        Self { rust: rust && self.design == Design::Freehold, ..self }
    }

    /// Without what is planted.
    fn without(self, plant: Option<Plant>) -> Self {
        Self { plant, ..self }
    }

    /// Whether it does without a rule of that name. One that begins with a kernel's name and a colon
    /// is that kernel's.
    fn leaves_out(&self, rule: &str) -> bool {
        let others = rule.split_once(": ").is_some_and(|(of, _)| of != self.design.name());
        others || self.plant.as_ref().is_some_and(|plant| plant.leaves_out(rule))
    }

    /// `-locking-kasan`, or nothing: what is added to the name of the folder of its objects.
    fn suffix(&self) -> String {
        let rust = if self.rust { "-rust" } else { "" };
        let checks = self.checks.iter().map(|check| format!("-{}", check.name()));
        rust.to_owned() + &checks.collect::<String>()
    }

    /// The design's name, with the checks, and what it does without.
    fn name(&self) -> String {
        let without = self.plant.as_ref().map(|plant| format!("-without-{}", plant.name));
        format!("{}{}{}", self.design.name(), self.suffix(), without.unwrap_or_default())
    }
}

impl Check {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Builds and boots them; how the worst of them ended.
pub(super) fn run(arguments: &Arguments) -> Result<End, Trouble> {
    let folder = build::target().join("linux/built");
    fs::create_dir_all(&folder)?;
    // The build's notes have whole paths in them.
    let folder = folder.canonicalize()?;
    let plant = planted(arguments)?;
    if let Some(to) = &arguments.series {
        return series::write(&folder, to).map(|()| End::Passed);
    }
    if let Some(categories) = &arguments.foreign {
        return foreign::run(arguments, categories, &folder);
    }
    if let (Some(_), [_, _, ..]) = (&arguments.record, &arguments.cpus[..]) {
        return Err(Trouble::Wrong("--record is for one number of --cpus".to_owned()));
    }
    let qemu = qemu(arguments)?;
    let mut rows = Vec::new();
    let mut worst = End::Passed;
    let (mut missing, mut files) = (None, None);
    for &design in arguments.built.map_or(&[][..], Built::designs) {
        let kind = Kind::of(design, &arguments.checks)?.by_kbuild(arguments.rust);
        let kind = kind.without(plant.clone());
        let image = match image(arguments, &folder, &kind) {
            Ok(image) => image,
            // The others may be had.
            Err(Trouble::Missing(why)) => {
                eprintln!("SKIPPED: {} was not built: {why}", kind.name());
                missing = Some(why);
                continue;
            }
            Err(wrong) => return Err(wrong),
        };
        let files = match &files {
            Some(files) => files,
            None => files.insert(guest_files(arguments, &folder)?),
        };
        // Instructions do not depend on how many CPUs there are.
        for &cpus in if arguments.instructions { &[1][..] } else { &arguments.cpus } {
            let (end, counted) = boots(arguments, files, &kind, &image, qemu.clone(), cpus)?;
            rows.extend(counted);
            worst = worse(worst, end);
        }
    }
    if let (Some(plant), None) = (&plant, &missing) {
        let noticed = if worst == End::Passed { "NOT NOTICED" } else { "noticed" };
        eprintln!("{noticed}: a kernel without {}, where {}", plant.name, plant.why);
        // A machine that has died has noticed, too.
        return Ok(if worst == End::Passed { End::Passed } else { End::Failed });
    }
    if arguments.record.is_some() {
        return missing.map_or(Ok(worst), |why| Err(Trouble::Missing(why)));
    }
    if rows.is_empty() && worst == End::Passed {
        return Err(Trouble::Missing(missing.unwrap_or_default()));
    }
    // Counts of a kernel that checks itself are no counts to compare.
    let name = format!("built{}.json", Kind::of(Design::Vanilla, &arguments.checks)?.suffix());
    let file = build::target().join("linux").join(name);
    fs::write(&file, table::json(&rows))?;
    print!("{}\n{}", table::table(&rows), table::others(&rows));
    eprintln!("all rows: {}", file.display());
    Ok(worst)
}

fn worse(one: End, other: End) -> End {
    if other.code() > one.code() { other } else { one }
}

fn qemu(arguments: &Arguments) -> Result<PathBuf, Trouble> {
    // Who names one wants that one.
    let lacks = if arguments.qemu.is_some() { Trouble::Wrong } else { Trouble::Missing };
    qemu::find(arguments.qemu.as_deref()).map_err(lacks)
}

/// What is planted, if anything.
fn planted(arguments: &Arguments) -> Result<Option<Plant>, Trouble> {
    let Some(name) = &arguments.plant else { return Ok(None) };
    if arguments.built != Some(Built::Freehold) {
        return Err(Trouble::Wrong(format!("--plant {name} is for --built freehold")));
    }
    Plant::of(name).map(Some)
}

/// The loads that are wanted, in the words of `--loads`; none where all are.
fn wanted(arguments: &Arguments, kind: &Kind) -> Vec<String> {
    let usual = arguments.built.and_then(Built::load);
    match (&kind.plant, usual.or(arguments.instructions.then_some(loads::COST))) {
        _ if !arguments.loads.is_empty() => arguments.loads.clone(),
        (_, Some(load)) => vec![load.to_owned()],
        (Some(plant), _) => plant.loads(),
        _ if arguments.record.is_some() => record::LOADS.map(str::to_owned).to_vec(),
        _ => Vec::new(),
    }
}

fn guest_files(arguments: &Arguments, folder: &Path) -> Result<PathBuf, Trouble> {
    let more = match arguments.record {
        Some(_) => record::programs()?,
        None => Vec::new(),
    };
    boots::files(folder, &more)
}

/// Boots a kernel as often as is asked for, or once to record its loads; how the worst boot ended.
fn boots(
    arguments: &Arguments,
    archive: &Path,
    kind: &Kind,
    image: &Path,
    qemu: PathBuf,
    cpus: u8,
) -> Result<(End, Vec<table::Row>), Trouble> {
    let machine = machine(arguments, qemu, cpus);
    let loads = loads::chosen(&wanted(arguments, kind), cpus, !kind.checks.is_empty())?;
    let guest = boots::Guest {
        image: image.to_owned(),
        archive: archive.to_owned(),
        low: arguments.low.into(),
        movable: arguments.movable,
    };
    let (memory, nodes, how) = (&machine.memory, arguments.nodes, machine.accelerator.describe());
    let (name, s) = (kind.name(), if nodes == 1 { "" } else { "s" });
    eprintln!("{name}: Linux {}, {cpus} CPUs, {memory} in {nodes} node{s}, {how}", source::VERSION);
    let limit = limit(arguments, cpus);
    if let Some(to) = &arguments.record {
        let end = record::record(&machine, &guest, kind, to, &loads, limit)?;
        return Ok((end, Vec::new()));
    }
    let (mut worst, mut rows) = (End::Passed, Vec::new());
    for boot in 1..=arguments.boots {
        let (end, counted) =
            boots::boot(&machine, &guest, kind, (boot, arguments.nodes), &loads, limit)?;
        rows.extend(counted);
        worst = worse(worst, end);
    }
    Ok((worst, rows))
}

/// The kernel that is to be booted: built now, or, where only those that are there are asked for,
/// what is there.
fn image(arguments: &Arguments, folder: &Path, kind: &Kind) -> Result<PathBuf, Trouble> {
    if !arguments.cached {
        return kernel::image(folder, kind);
    }
    let kept = kernel::kept(folder, kind);
    let why = format!("{} is not there, and --cached builds none", kept.display());
    if !kept.exists() {
        return Err(Trouble::Missing(why));
    }
    if let Some(source) = newer_source(&build::root(), &kept)? {
        let why = format!("{} is older than {source}, and --cached builds none", kept.display());
        return Err(Trouble::Missing(why));
    }
    Ok(kept)
}

/// A source that has changed since that kernel was built.
fn newer_source(root: &Path, kept: &Path) -> Result<Option<String>, Trouble> {
    let sources = "os/linux crates/freehold/src crates/freehold-ffi/src \
        crates/freehold-ffi/include xtask/src/linux/objects.rs xtask/src/linux/built/kernel.rs \
        xtask/src/linux/built/rules.rs xtask/src/linux/built/series.rs \
        xtask/src/linux/built/tree.rs";
    let mut newer = Command::new("find");
    newer.current_dir(root).args(sources.split_whitespace()).arg("-newer").arg(kept);
    let found = output(newer.args(["-type", "f", "-print", "-quit"]))?;
    Ok(found.lines().next().map(str::to_owned))
}

/// Seconds for a boot: of a busy machine that translates two CPUs; with checks several times as
/// long.
fn limit(arguments: &Arguments, cpus: u8) -> u64 {
    let usual = 900 + 100 * u64::from(cpus);
    let usual = if arguments.record.is_some() { 2 * usual } else { usual };
    arguments.timeout.unwrap_or(if arguments.checks.is_empty() { usual } else { 4 * usual })
}

/// The machine that the kernels are booted on. Where instructions are counted each takes a
/// nanosecond of the guest's clock.
///
/// A kernel that checks itself gets less memory: what fills it to the end (compact, swap, poison)
/// is some times as slow page by page, and finds as much in less.
fn machine(arguments: &Arguments, qemu: PathBuf, cpus: u8) -> Machine {
    let usual = if arguments.checks.is_empty() { 2560 } else { 1536 };
    let memory = format!("{}M", arguments.memory.unwrap_or(usual));
    let (accelerator, extra) = match arguments.kvm {
        _ if arguments.instructions => {
            (Accelerator::TcgSingle, vec!["-icount".into(), "shift=0,sleep=off".into()])
        }
        Kvm::On => (Accelerator::Kvm, Vec::new()),
        Kvm::Off => (Accelerator::translated(cpus), Vec::new()),
    };
    Machine { qemu, cpus, memory, accelerator, extra }
}

#[cfg(test)]
mod tests {
    use super::rules::Rules;
    use super::*;

    #[test]
    fn a_kernel_with_checks_has_a_name_and_folders_of_its_own() {
        let kind = |checks: &[Check]| Kind::of(Design::Rfc, checks);
        assert_eq!(kind(&[]).unwrap().name(), "rfc");
        let both = kind(&[Check::Kasan, Check::Locking, Check::Kasan]).unwrap();
        assert_eq!(both.name(), "rfc-locking-kasan");
        assert_eq!(both.suffix(), "-locking-kasan");
        let folder = Path::new("built");
        assert_ne!(kernel::kept(folder, &both), kernel::kept(folder, &kind(&[]).unwrap()));
        let refused = kind(&[Check::Kcsan, Check::Locking, Check::Kasan]).unwrap_err();
        assert!(refused.to_string().contains("one of them"), "{refused}");
    }

    #[test]
    fn each_kernel_of_a_thread_has_edits_of_its_own_and_its_load() {
        let edits = Rules::read(&build::root().join("os/linux/built/threads.json")).unwrap();
        let names: Vec<String> = edits.names().collect();
        let mut found = 0;
        for built in [Built::Contiguous, Built::Lazyfree, Built::HighOrder] {
            for &design in built.designs() {
                let kind = Kind::of(design, &[]).unwrap();
                let own = names.iter().filter(|name| !kind.leaves_out(name)).count();
                assert_eq!(own == 0, design == Design::Vanilla, "{}", kind.name());
                found += own;
            }
            let load = built.load().unwrap().to_owned();
            assert!(loads::chosen(&[load], 2, false).is_ok(), "{built:?}");
        }
        assert_eq!(found, names.len());
    }

    #[test]
    fn a_threads_kernels_run_its_load_where_no_other_is_named() {
        let of = |words: &str| {
            let arguments = super::super::parsed(words).unwrap();
            wanted(&arguments, &Kind::of(Design::Vanilla, &[]).unwrap())
        };
        assert_eq!(of("--built contiguous --instructions"), ["ranges"]);
        assert_eq!(of("--built lazyfree"), ["lazyfree"]);
        assert_eq!(of("--built contiguous --instructions --loads cost"), ["cost"]);
        assert_eq!(of("--built vanilla --instructions"), ["cost"]);
        assert!(of("--built vanilla").is_empty());
    }

    /// Otherwise a defect would be noticed by it.
    #[test]
    fn a_machine_that_does_not_begin_is_no_failed_boot() {
        let arguments = super::super::parsed("--built freehold").unwrap();
        let machine = machine(&arguments, "false".into(), 2);
        let guest = boots::Guest {
            image: PathBuf::new(),
            archive: PathBuf::new(),
            low: 512,
            movable: None,
        };
        let kind = Kind::of(Design::Freehold, &[]).unwrap();
        let refused = boots::boot(&machine, &guest, &kind, (1, 1), &[], 60).unwrap_err();
        assert!(refused.to_string().contains("did not begin"), "{refused}");
    }

    #[test]
    fn a_kernel_is_older_than_a_header_or_a_rule_that_has_changed_since() {
        let root = std::env::temp_dir().join(format!("freehold-newer-{}", std::process::id()));
        let files = "os/linux/fh.h crates/freehold/src/lib.rs crates/freehold-ffi/src/lib.rs \
            crates/freehold-ffi/include/freehold.h xtask/src/linux/objects.rs \
            xtask/src/linux/built/kernel.rs xtask/src/linux/built/rules.rs \
            xtask/src/linux/built/series.rs xtask/src/linux/built/tree.rs kept";
        let files: Vec<PathBuf> = files.split_whitespace().map(|name| root.join(name)).collect();
        let set = |file: &Path, seconds| {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            fs::File::create(file).unwrap().set_modified(time).unwrap();
        };
        let (kept, sources) = files.split_last().unwrap();
        files.iter().for_each(|file| set(file, 1000));
        assert_eq!(newer_source(&root, kept).unwrap(), None);
        for source in sources {
            set(source, 2000);
            let told = newer_source(&root, kept).unwrap().unwrap();
            assert_eq!(root.join(told), *source);
            set(source, 1000);
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_a_recording_does_not_heed_is_refused() {
        for words in ["--nodes 2", "--boots 2", "--checks kasan"] {
            let refused = super::super::parsed(&format!("--built vanilla --record t {words}"));
            assert!(refused.unwrap_err().contains("cannot be used with"), "{words}");
        }
        let several = super::super::parsed("--built vanilla --record t --cpus 2,4").unwrap();
        assert!(run(&several).unwrap_err().to_string().contains("one number of --cpus"));
    }
}
