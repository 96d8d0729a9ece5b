//! `cargo xtask linux`: Linux compiled here, with Freehold or without, in QEMU. What comes out of
//! it: docs/linux.md.

mod built;
#[cfg(test)]
mod header;
mod objects;
#[cfg(test)]
mod pieces;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::qemu::Kvm;

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

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask linux --built freehold            all loads in Freehold's kernel, on 2 CPUs
  cargo xtask linux --built all --instructions  of an allocation and its free, in each kernel
  cargo xtask linux --built all --boots 5       kernels compiled here: as it is, the \
pcp-buddy RFC's, Freehold's
  cargo xtask linux --built all --cpus 2,4,8    with so many CPUs each
  cargo xtask linux --built contiguous --instructions   Linux with and without the patches of a \
thread in docs/threads
  cargo xtask linux --built freehold --nodes 2  its memory cut into two nodes
  cargo xtask linux --foreign                   tests that others wrote, both kernels in one table
  cargo xtask linux --built freehold --checks locking,kasan --loads cpus,swap
  cargo xtask linux --built freehold --plant isolate   a kernel that does without \
something: must fail
  cargo xtask linux --series patches            the tree with Freehold, as patches for git am
  cargo xtask linux --built rfc --record traces the loads in the RFC's kernel, as traces \
for freehold replay fidelity

Everything lies in target/linux: packages (downloaded once, nothing is installed), kernels, the \
guest.

Exit status: 0 all passed, or SKIPPED where packages, compilers or QEMU are missing; 1 something \
failed (of \
--foreign: is worse with Freehold), 2 nothing was
run, 3 the time limit, 4 the machine died without a word.")]
pub(crate) struct Arguments {
    /// The kernel that is compiled (170 MB to download once, some minutes) and booted; it counts
    /// what its own page allocator does under some loads.
    #[arg(
        long,
        value_enum,
        value_name = "vanilla|rfc|freehold|all|contiguous|lazyfree|high-order",
        required_unless_present_any = ["foreign", "series"]
    )]
    built: Option<built::Built>,
    /// Vanilla and Freehold under the kernel's own tests of its memory, stress-ng and loads that
    /// ask for chunks where one page is kept in each block: a table, the worst first; or those of
    /// some categories.
    #[arg(long, value_name = "CATEGORY", num_args = 0.., value_delimiter = ',',
        conflicts_with_all = ["built", "loads", "record", "instructions", "plant", "nodes",
            "boots"])]
    foreign: Option<Vec<String>>,
    /// The tree with Freehold as patches for `git am`, into that folder; nothing is compiled.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["built", "foreign"])]
    series: Option<PathBuf>,
    /// Freehold is compiled by the kernel's own build, with CONFIG_RUST, instead of by cargo.
    #[arg(long, requires = "built")]
    rust: bool,
    /// The Linux Test Project, built there: its tests of memory are the category ltp.
    #[arg(long, value_name = "FOLDER", requires = "foreign")]
    ltp: Option<PathBuf>,
    /// CPUs of the machine; also several numbers, as in 2,4,8.
    #[arg(long, default_value = "2", value_delimiter = ',', value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=16))]
    cpus: Vec<u8>,
    /// Memory of the machine in MiB: 2560, or 1536 with --checks.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(192..=65536))]
    memory: Option<u32>,
    /// How much of it lies below 4 GiB, in zone DMA32.
    #[arg(long, default_value_t = 512, value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(192..=3072))]
    low: u32,
    /// How much of it is in zone Movable.
    #[arg(long, value_name = "MIB")]
    movable: Option<u32>,
    /// What those kernels check of themselves: compiled anew for it, once, and several times as
    /// slow.
    #[arg(long, value_enum, value_name = "CHECK", value_delimiter = ',')]
    checks: Vec<built::Check>,
    /// Those loads only, each so many rounds where a number is given.
    #[arg(long, value_name = "LOAD[:ROUNDS]", value_delimiter = ',')]
    loads: Vec<String>,
    /// Into how many nodes those kernels cut the memory.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=8))]
    nodes: u8,
    /// Record the loads in those kernels instead of counting (`freehold record --drain`): a trace
    /// of each load there, with what a replay needs beside it.
    #[arg(long, value_name = "FOLDER",
        conflicts_with_all = ["nodes", "boots", "checks", "plant", "instructions"])]
    record: Option<PathBuf>,
    /// How often each of those kernels is booted.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    boots: u32,
    /// Boot those that were built before, and build none.
    #[arg(long)]
    cached: bool,
    /// Count instructions instead of time, on one CPU: the same every time, on any machine.
    #[arg(long, conflicts_with = "kvm")]
    instructions: bool,
    /// What Freehold's kernel shall do without, to see it found: a name of
    /// os/linux/built/plants.json.
    #[arg(long, value_name = "DEFECT")]
    plant: Option<String>,
    /// Whether the hardware runs the CPUs.
    #[arg(long, value_enum, default_value_t = Kvm::Off)]
    kvm: Kvm,
    /// Seconds after which the machine is stopped, without those in which other work kept it from a
    /// core; usually 900, and 100 for each CPU; with --record twice, with --checks four times as many.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// QEMU, where it is not the one in PATH.
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let ended = if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        built::run(arguments)
    } else {
        Err(Trouble::Missing("it is for x86-64 under Linux".to_owned()))
    };
    match ended {
        Ok(end) => Ok(ExitCode::from(end.code())),
        Err(Trouble::Wrong(why)) => Err(why),
        Err(Trouble::Missing(why)) => {
            eprintln!("SKIPPED: no Linux was run: {why}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What `cargo xtask linux` and those words say.
#[cfg(test)]
fn parsed(words: &str) -> Result<Arguments, String> {
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }
    let words = ["linux"].into_iter().chain(words.split_whitespace());
    Command::try_parse_from(words).map(|it| it.arguments).map_err(|error| error.to_string())
}

#[test]
fn without_a_kernel_it_says_which_there_are() {
    let refused = parsed("").unwrap_err();
    assert!(parsed("--foreign cow,thp").is_ok());
    for kernel in ["vanilla", "rfc", "freehold", "all", "contiguous", "lazyfree", "high-order"] {
        assert!(refused.contains(kernel), "{refused}");
        assert!(parsed(&format!("--built {kernel}")).is_ok(), "{kernel}");
    }
}
