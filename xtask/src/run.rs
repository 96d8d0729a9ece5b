//! `cargo xtask qemu`: builds the kernel, chooses how to run it, runs it, and says how it went.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::build::{self, Profile};
use crate::qemu::{self, Accelerator, End, Machine};

/// How long the probe may take. Where KVM works the kernel says hello within a fraction of a
/// second.
const PROBE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Kvm {
    /// Where a kernel really boots under it within seconds.
    Auto,
    /// In any case.
    On,
    /// Never.
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Threads {
    /// One for each CPU where this machine has as many cores, one for all otherwise: a CPU that
    /// waits for another one would keep it from running.
    Auto,
    /// One for all.
    Single,
    /// One for each CPU.
    Multi,
}

impl Threads {
    /// How that many CPUs are run.
    pub(crate) fn accelerator(self, cpus: u8) -> Accelerator {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Single => Accelerator::TcgSingle,
            Self::Multi => Accelerator::TcgMulti,
            Self::Auto if cores >= usize::from(cpus) => Accelerator::TcgMulti,
            Self::Auto => Accelerator::TcgSingle,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Inject {
    /// A self-test that fails.
    Failure,
    /// A panic.
    Panic,
    /// A page fault that nobody expects.
    Fault,
    /// Other CPUs are not told to forget translations: the self-test must notice.
    NoShootdown,
    /// Nothing ever ends: the time limit must.
    Hang,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo xtask qemu                              the self-test on 4 CPUs with 256 MiB
  cargo xtask qemu --cpus 8 --memory 1G         on 8 CPUs with 1 GiB
  cargo xtask qemu --bench                      benchmarks, too
  cargo xtask qemu --only lazyfree              the tests with that in their names
  cargo xtask qemu --inject no-shootdown        a defect, on purpose: must fail

Exit status: 0 all passed, 1 something failed, 2 nothing was run (QEMU is missing, the kernel was not built),
3 the time limit, 4 the machine died without a word.")]
pub(crate) struct Arguments {
    /// CPUs of the machine.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
    cpus: u8,
    /// Memory of the machine: a number and M or G.
    #[arg(long, default_value = "256M", value_parser = memory)]
    memory: String,
    /// Seconds after which the machine is stopped. By default 90, and more for each CPU beyond four
    /// and each GiB of memory.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Whether the hardware runs the CPUs.
    #[arg(long, value_enum, default_value_t = Kvm::Auto)]
    kvm: Kvm,
    /// On how many threads CPUs run where the hardware does not.
    #[arg(long, value_enum, default_value_t = Threads::Auto)]
    threads: Threads,
    /// Run the benchmarks after the self-test, built without debug assertions.
    #[arg(long)]
    bench: bool,
    /// Run those self-tests only whose names contain this word.
    #[arg(long, value_name = "WORD", default_value = "", value_parser = word)]
    only: String,
    /// Build a defect in, to see it found.
    #[arg(long, value_enum, value_name = "DEFECT")]
    inject: Option<Inject>,
    /// QEMU, where it is not the one in PATH.
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,
    /// Print the command that runs QEMU.
    #[arg(long, short)]
    verbose: bool,
}

/// How much that is, in MiB.
fn mebibytes(text: &str) -> Option<u64> {
    let (number, unit) =
        text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    match (number.parse::<u64>(), unit) {
        (Ok(n), "M") => Some(n),
        (Ok(n), "G") => Some(n.saturating_mul(1024)),
        _ => None,
    }
}

fn memory(text: &str) -> Result<String, String> {
    match mebibytes(text) {
        None => Err("a number and M or G, as in 256M".to_owned()),
        Some(..64) => Err("the self-test needs 64M".to_owned()),
        Some(_) => Ok(text.to_owned()),
    }
}

fn word(text: &str) -> Result<String, String> {
    if text.contains(char::is_whitespace) {
        return Err("one word: the kernel's command line is divided at blanks".to_owned());
    }
    Ok(text.to_owned())
}

impl Arguments {
    /// Seconds. The self-test goes through all memory several times, and translated CPUs share the
    /// machine's own.
    fn limit(&self) -> u64 {
        let gibibytes = mebibytes(&self.memory).unwrap_or(0) / 1024;
        let more = 30 * u64::from(self.cpus.saturating_sub(4)) + gibibytes.saturating_mul(60);
        self.timeout.unwrap_or(more.saturating_add(90))
    }

    fn command_line(&self) -> String {
        let mut line = format!("cpus={}", self.cpus);
        if !self.only.is_empty() {
            line += &format!(" only={}", self.only);
        }
        if self.bench {
            line += " bench";
        }
        if let Some(inject) = self.inject.and_then(|inject| inject.to_possible_value()) {
            line += &format!(" inject={}", inject.get_name());
        }
        line
    }
}

/// Whether a kernel boots under KVM here, really: nested in another machine it may start and then
/// do nothing.
fn kvm_works(machine: &Machine, kernel: &std::path::Path) -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if let Err(error) = device {
        eprintln!("KVM is not used: /dev/kvm: {error}");
        return false;
    }
    let machine = Machine { accelerator: Accelerator::Kvm, ..machine.clone() };
    let end = machine.run(kernel, "probe", PROBE, false);
    if end != Ok(End::Passed) {
        eprintln!(
            "KVM is not used: a kernel does not boot under it here within {} s",
            PROBE.as_secs()
        );
    }
    end == Ok(End::Passed)
}

/// Does it.
///
/// # Errors
///
/// Where nothing could be run.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let qemu = qemu::find(arguments.qemu.as_deref())?;
    let kernel = build::build(if arguments.bench { Profile::Bench } else { Profile::Checked })?;
    let (memory, accelerator) =
        (arguments.memory.clone(), arguments.threads.accelerator(arguments.cpus));
    let mut machine =
        Machine { qemu, cpus: arguments.cpus, memory, accelerator, extra: Vec::new() };
    let kvm = match arguments.kvm {
        Kvm::On => true,
        Kvm::Off => false,
        Kvm::Auto => kvm_works(&machine, &kernel),
    };
    if kvm {
        machine.accelerator = Accelerator::Kvm;
    } else if arguments.bench {
        eprintln!(
            "The CPUs are translated, not run: the benchmarks' counts are right, their nanoseconds mean little."
        );
    }
    let line = arguments.command_line();
    if arguments.verbose {
        eprintln!("{} {:?}", machine.qemu.display(), machine.arguments(&kernel, &line));
    }
    eprintln!("{} CPUs, {}, {}", machine.cpus, machine.memory, machine.accelerator.describe());
    let started = Instant::now();
    let end = machine.run(&kernel, &line, Duration::from_secs(arguments.limit()), true)?;
    let seconds = started.elapsed().as_secs_f64();
    end.tell(seconds, arguments.limit());
    Ok(ExitCode::from(end.code()))
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

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        let parsed = Command::try_parse_from([&["qemu"], words].concat());
        parsed.map(|command| command.arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_kernel_is_told_what_was_asked_for() {
        assert_eq!(parse(&[]).unwrap().command_line(), "cpus=4");
        let all = ["--cpus", "2", "--only", "order", "--bench", "--inject", "no-shootdown"];
        assert_eq!(
            parse(&all).unwrap().command_line(),
            "cpus=2 only=order bench inject=no-shootdown"
        );
    }

    #[test]
    fn more_cpus_and_more_memory_have_more_time() {
        let limit = |words: &[&str]| parse(words).unwrap().limit();
        assert_eq!(limit(&[]), 90);
        assert_eq!(limit(&["--cpus", "1", "--memory", "512M"]), 90);
        assert_eq!(limit(&["--cpus", "8"]), 210);
        assert_eq!(limit(&["--cpus", "1", "--memory", "8G"]), 570);
        assert_eq!(limit(&["--cpus", "8", "--memory", "8192M"]), 690);
        assert_eq!(limit(&["--memory", "8G", "--timeout", "7"]), 7);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [["--cpus", "9"], ["--memory", "32M"], ["--memory", "256"], ["--only", "a b"]]
        {
            let Err(error) = parse(&wrong) else { panic!("{wrong:?} was taken") };
            assert!(error.contains(wrong[1]), "{error}");
        }
        assert_eq!(memory("2G"), Ok("2G".to_owned()));
    }
}
