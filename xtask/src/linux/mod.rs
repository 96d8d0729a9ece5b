//! `cargo xtask linux`: Freehold as a module of a stock Linux kernel, in QEMU. What the module is:
//! docs/linux.md.

mod backports;
mod built;
mod compiler;
mod cpio;
mod guest;
#[cfg(test)]
mod header;
mod module;
mod packages;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::build;
use crate::qemu::{self, Accelerator, End, Kvm, Machine, Threads};

/// Why nothing was run.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Something that this machine does not have, or cannot get: the run is skipped.
    Missing(String),
    /// Something that should have worked.
    Wrong(String),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Wrong(error.to_string())
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Missing(what) | Self::Wrong(what)) = self;
        f.write_str(what)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Which {
    /// The kernel of the Debian release that this machine runs.
    HostRelease,
    /// The kernel of that release with PREEMPT_RT.
    Rt,
    /// The newest there is: of the backports to Debian 13, built in a system of its own under
    /// target/linux (for root; 700 MB).
    Backports,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Plant {
    /// A frame that somebody has is freed by somebody else.
    Twice,
    /// A frame is never freed.
    Lose,
    /// Somebody writes to a frame that is another's.
    Scribble,
    /// Pages are not cleared before a process gets them; for --anonymous.
    Dirty,
    /// A frame is kept when its mapping goes; for --anonymous.
    Keep,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo xtask linux                             the self-test, a million operations on 2 CPUs
  cargo xtask linux --cpus 4 --ops 100000000    on 4 CPUs, for long
  cargo xtask linux --anonymous                 ordinary memory of processes and compilers, from the module
  cargo xtask linux --plant twice               a defect, on purpose: must fail
  cargo xtask linux --built all --instructions  of an allocation and its free, in each kernel
  cargo xtask linux --built all --boots 5       kernels compiled here: as it is, the pcp-buddy RFC's, Freehold's
  cargo xtask linux --built all --cpus 2,4,8    with so many CPUs each
  cargo xtask linux --built freehold --nodes 2  its memory cut into two nodes
  cargo xtask linux --built freehold --checks locking,kasan --loads cpus,swap
  cargo xtask linux --built freehold --plant isolate   a kernel that does without something: must fail
  cargo xtask linux --built rfc --record traces the loads in the RFC's kernel, as traces for freehold replay fidelity

Everything lies in target/linux: packages (40 MB downloaded once, nothing is installed), the module, the guest.

Exit status: 0 all passed, or SKIPPED where packages, compilers or QEMU are missing; 1 something failed, 2 nothing was
run, 3 the time limit, 4 the machine died without a word.")]
pub(crate) struct Arguments {
    /// Which kernel.
    #[arg(long, value_enum, default_value_t = Which::HostRelease)]
    kernel: Which,
    /// CPUs of the machine; for --built also several numbers, as in 2,4,8.
    #[arg(long, default_value = "2", value_delimiter = ',', value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=16))]
    cpus: Vec<u8>,
    /// Memory of the machine in MiB: 1024, of which the module takes a quarter, or 2560 for --built,
    /// 1536 with --checks.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(512..=65536))]
    memory: Option<u32>,
    /// Compile that kernel instead (170 MB to download once, some minutes), and count what its own
    /// page allocator does under some loads.
    #[arg(long, value_enum, value_name = "KERNEL",
        conflicts_with_all = ["kernel", "ops", "anonymous"])]
    built: Option<built::Built>,
    /// What those kernels check of themselves: compiled anew for it, once, and several times as slow.
    #[arg(long, value_enum, value_name = "CHECK", value_delimiter = ',', requires = "built")]
    checks: Vec<built::Check>,
    /// Those loads only, each so many rounds where a number is given.
    #[arg(long, value_name = "LOAD[:ROUNDS]", value_delimiter = ',', requires = "built")]
    loads: Vec<String>,
    /// Into how many nodes those kernels cut the memory.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "built",
        value_parser = clap::value_parser!(u8).range(1..=8))]
    nodes: u8,
    /// Record the loads in those kernels instead of counting (`freehold record --drain`): a trace of
    /// each load there, with what a replay needs beside it.
    #[arg(long, value_name = "FOLDER", requires = "built", conflicts_with = "json")]
    record: Option<PathBuf>,
    /// How often each of those kernels is booted.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "built",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    boots: u32,
    /// Boot those that were built before, and build none.
    #[arg(long, requires = "built")]
    cached: bool,
    /// How many allocations and frees the self-test makes; a million where nothing else is asked
    /// for.
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Serve ordinary anonymous memory of a tree of processes, at least that many pages, and of
    /// compilers; 6.1 and 7.3.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100000")]
    anonymous: Option<u64>,
    /// Count instructions instead of time, on one CPU: the same every time, on any machine.
    #[arg(long, requires = "built", conflicts_with = "kvm")]
    instructions: bool,
    /// Print what was counted as JSON.
    #[arg(long, requires = "built")]
    json: bool,
    /// Build a defect in, to see it found: in the module twice, lose, scribble, dirty or keep; with
    /// --built freehold what its kernel shall do without, by a name of os/linux/built/plants.json.
    #[arg(long, value_name = "DEFECT")]
    plant: Option<String>,
    /// Whether the hardware runs the CPUs.
    #[arg(long, value_enum, default_value_t = Kvm::Auto)]
    kvm: Kvm,
    /// On how many threads CPUs run where the hardware does not.
    #[arg(long, value_enum, default_value_t = Threads::Auto)]
    threads: Threads,
    /// Seconds after which the machine is stopped; 300, and more for more operations and pages,
    /// and compilers.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// QEMU, where it is not the one in PATH.
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,
    /// Show the module's statistics and the command that runs QEMU.
    #[arg(long, short)]
    verbose: bool,
}

impl Arguments {
    fn words(&self) -> Vec<String> {
        let other = self.anonymous.is_some();
        let ops = self.ops.unwrap_or(if other { 0 } else { 1_000_000 });
        let blocks = self.memory() / 8;
        let mut words = vec![format!("fh.blocks={blocks}"), format!("fh.ops={ops}")];
        words.extend((!other).then(|| guest::DEBUGGING.to_owned()));
        words.extend(self.anonymous.map(|pages| format!("fh.anonymous={pages}")));
        words.extend(self.plant.as_ref().map(|plant| format!("fh.plant={plant}")));
        words
    }

    fn memory(&self) -> u32 {
        self.memory.unwrap_or(1024)
    }

    /// Seconds. Two busy cores that translate four CPUs make 20,000 operations a second, or fault
    /// 3,000 pages in.
    fn limit(&self) -> u64 {
        let more = self.ops.unwrap_or(0) / 10_000;
        let pages = self.anonymous.unwrap_or(0) / 1_000;
        // Compilers take minutes where the machine is busy.
        let compilers = if self.anonymous.is_some() { 900 } else { 0 };
        self.timeout.unwrap_or(more.saturating_add(pages).saturating_add(300 + compilers))
    }

    fn folder(&self) -> PathBuf {
        let kernel = self.kernel.to_possible_value();
        build::target()
            .join("linux")
            .join(kernel.map_or_else(String::new, |kernel| kernel.get_name().to_owned()))
    }
}

/// Does it.
///
/// # Errors
///
/// Where nothing could be run, but for what a machine need not have.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    match boot(arguments) {
        Ok(end) => Ok(ExitCode::from(end.code())),
        Err(Trouble::Wrong(why)) => Err(why),
        Err(Trouble::Missing(why)) => {
            eprintln!("SKIPPED: Freehold in Linux was not run: {why}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn boot(arguments: &Arguments) -> Result<End, Trouble> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Trouble::Missing("it is for x86-64 under Linux".to_owned()));
    }
    if let Some(built) = arguments.built {
        return built::run(arguments, built);
    }
    if let Some(plant) = &arguments.plant {
        Plant::from_str(plant, false)
            .map_err(|wrong| Trouble::Wrong(format!("--plant {plant}: {wrong}")))?;
    }
    let &[cpus] = &arguments.cpus[..] else {
        return Err(Trouble::Wrong("--cpus with several numbers is for --built".to_owned()));
    };
    let qemu = qemu::find(arguments.qemu.as_deref());
    // Who names one wants that one.
    let qemu =
        qemu.map_err(if arguments.qemu.is_some() { Trouble::Wrong } else { Trouble::Missing })?;
    let folder = arguments.folder();
    std::fs::create_dir_all(&folder)?;
    let kernel = match arguments.kernel {
        Which::HostRelease => packages::host_release(&folder, packages::CLOUD)?,
        Which::Rt => packages::host_release(&folder, packages::RT)?,
        Which::Backports => backports::kernel(&folder)?,
    };
    let guest = guest::build(&folder, &kernel, arguments.anonymous.is_some())?;
    let mut machine = Machine {
        qemu,
        cpus,
        memory: format!("{}M", arguments.memory()),
        accelerator: Accelerator::Kvm,
        extra: vec!["-initrd".into(), guest.archive.clone().into()],
    };
    let kvm = match arguments.kvm {
        Kvm::On => true,
        Kvm::Off => false,
        Kvm::Auto => guest::kvm_works(&folder, &machine, &guest),
    };
    if !kvm {
        machine.accelerator = arguments.threads.accelerator(cpus);
    }
    let line = guest::command_line(&arguments.words());
    if arguments.verbose {
        eprintln!("{} {:?}", machine.qemu.display(), machine.arguments(&guest.image, &line));
    }
    let how = machine.accelerator.describe();
    eprintln!("Linux {}, {} CPUs, {}, {how}", kernel.release, machine.cpus, machine.memory);
    let verbose = arguments.verbose;
    let started = Instant::now();
    let limit = Duration::from_secs(arguments.limit());
    let shown = move |line: &str| verbose || !line.starts_with("stat: ");
    let (end, _) = guest::boot(&machine, &guest, &line, limit, shown).map_err(Trouble::Wrong)?;
    let seconds = started.elapsed().as_secs_f64();
    tell(&end, seconds);
    Ok(end)
}

/// Says how a boot has ended.
fn tell(end: &End, seconds: f64) {
    match end {
        End::Passed => eprintln!("passed, after {seconds:.1} s"),
        End::Failed => eprintln!("FAILED, after {seconds:.1} s: see above"),
        End::TimedOut => eprintln!(
            "FAILED: it had not ended after {seconds:.0} s and was stopped; --timeout SECONDS"
        ),
        End::Died(code) => {
            eprintln!("FAILED: QEMU ended with {code:?} and the guest had not said anything")
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_guest_is_told_what_was_asked_for() {
        let words = |words: &[&str]| {
            Command::try_parse_from([&["linux"], words].concat())
                .unwrap()
                .arguments
                .words()
                .join(" ")
        };
        let debugging = guest::DEBUGGING;
        assert_eq!(words(&[]), format!("fh.blocks=128 fh.ops=1000000 {debugging}"));
        assert_eq!(
            words(&["--ops", "5", "--memory", "512", "--plant", "lose"]),
            format!("fh.blocks=64 fh.ops=5 {debugging} fh.plant=lose")
        );
        assert_eq!(words(&["--anonymous"]), "fh.blocks=128 fh.ops=0 fh.anonymous=100000");
        let limit = |words: &[&str]| {
            Command::try_parse_from([&["linux"], words].concat()).unwrap().arguments.limit()
        };
        assert_eq!(limit(&[]), 300);
        assert_eq!(limit(&["--anonymous", "1000"]), 1201);
        assert_eq!(limit(&["--ops", "100000000"]), 10_300);
        assert_eq!(limit(&["--anonymous", "10000000"]), 11_200);
        assert_eq!(limit(&["--ops", "100000000", "--timeout", "7"]), 7);
        assert!(guest::command_line(&["fh.x=1".to_owned()]).ends_with(" init_on_alloc=0 fh.x=1"));
    }
}
