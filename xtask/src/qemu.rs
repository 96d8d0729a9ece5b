//! QEMU: which one, how it is called, and what its end means.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accelerator {
    Kvm,
    /// Translated, one CPU after the other, on one core.
    TcgSingle,
    /// Translated, each CPU on a thread.
    TcgMulti,
}

impl Accelerator {
    /// How that many CPUs are translated: each on a thread where this machine has as many cores,
    /// all on one otherwise, since a CPU that waits for another one would keep it from running.
    pub(crate) fn translated(cpus: u8) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores >= usize::from(cpus) { Self::TcgMulti } else { Self::TcgSingle }
    }

    fn argument(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::TcgSingle => "tcg,thread=single",
            Self::TcgMulti => "tcg,thread=multi",
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::TcgSingle => "translated, all CPUs on one thread",
            Self::TcgMulti => "translated, each CPU on a thread",
        }
    }
}

/// Whether the hardware runs the CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Kvm {
    /// Yes: /dev/kvm must be there.
    On,
    /// No: QEMU translates.
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The kernel says that all is well.
    Passed,
    /// The kernel says that something is not.
    Failed,
    TimedOut,
    /// QEMU ended without the kernel having said anything: a triple fault, or QEMU does not start.
    Died(Option<i32>),
}

impl End {
    /// `isa-debug-exit` makes `2 * byte + 1` of the byte that the kernel writes: 0x10, or 0x11, for
    /// which OSTD has 0x20.
    fn of(code: Option<i32>) -> Self {
        match code {
            Some(0x21) => Self::Passed,
            Some(0x23 | 0x41) => Self::Failed,
            code => Self::Died(code),
        }
    }

    /// Says how a kernel's run ended, which took so many seconds of those that it might.
    pub(crate) fn tell(self, seconds: f64, limit: u64) {
        match self {
            Self::Passed => eprintln!("passed, after {seconds:.1} s"),
            Self::Failed => eprintln!("FAILED, after {seconds:.1} s: see above"),
            Self::TimedOut => eprintln!(
                "FAILED: the kernel had not ended after {limit} s and was stopped; the last line \
                 above tells how far it got. On a slow machine: --timeout SECONDS"
            ),
            Self::Died(Some(0)) => {
                eprintln!("FAILED: the machine was reset, after {seconds:.1} s: a triple fault?")
            }
            Self::Died(code) => {
                eprintln!("FAILED: QEMU ended with {code:?} and the kernel had not said anything")
            }
        }
    }

    /// What this command ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 1,
            Self::TimedOut => 3,
            Self::Died(_) => 4,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) qemu: PathBuf,
    pub(crate) cpus: u8,
    /// How much memory, as QEMU reads it.
    pub(crate) memory: String,
    pub(crate) accelerator: Accelerator,
    /// What else QEMU is told.
    pub(crate) extra: Vec<OsString>,
}

impl Machine {
    pub(crate) fn arguments(&self, kernel: &Path, command_line: &str) -> Vec<OsString> {
        let cpu = if self.accelerator == Accelerator::Kvm { "host" } else { "max" };
        let cpus = self.cpus.to_string();
        let how = self.accelerator.argument();
        let machine = ["-accel", how, "-cpu", cpu, "-smp", &cpus, "-m", &self.memory];
        // Nothing that is not needed: no network, no display, no monitor, no second try after a
        // triple fault.
        let devices = "-nic none -vga none -display none -monitor none -no-reboot -serial stdio \
                       -device isa-debug-exit,iobase=0xf4,iosize=4";
        let words = machine.into_iter().chain(devices.split(' '));
        let words = words.chain(["-append", command_line, "-kernel"]).map(OsString::from);
        words.chain([kernel.into()]).chain(self.extra.iter().cloned()).collect()
    }

    /// Starts a kernel, its serial port on `output`.
    pub(crate) fn start(
        &self,
        kernel: &Path,
        command_line: &str,
        output: Stdio,
    ) -> Result<Child, String> {
        let mut command = Command::new(&self.qemu);
        command.args(self.arguments(kernel, command_line)).stdin(Stdio::null()).stdout(output);
        command.spawn().map_err(|error| format!("{} does not start: {error}", self.qemu.display()))
    }

    /// Waits for a kernel that was started; stops it at the limit.
    pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<End, String> {
        let started = Instant::now();
        let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(End::of(status.code())),
                Ok(None) if !is_over(started.elapsed(), limit, || kept_waiting(&tasks)) => {
                    std::thread::sleep(Duration::from_millis(20))
                }
                Ok(None) => break,
                Err(error) => return Err(format!("waiting for QEMU: {error}")),
            }
        }
        // Whether it can be stopped or is just ending by itself: what counts is that it is gone.
        let _ = child.kill();
        child.wait().map_err(|error| format!("QEMU cannot be stopped: {error}"))?;
        Ok(End::TimedOut)
    }
}

/// Whether the limit has come. The time that other work kept it from a core does not count, up to
/// nine times the limit: a machine that starves does not hang.
fn is_over(elapsed: Duration, limit: Duration, kept: impl FnOnce() -> Duration) -> bool {
    elapsed >= limit && elapsed >= limit + kept().min(9 * limit)
}

/// How long the task that waited longest was ready to run and did not; nothing where the kernel does
/// not tell.
fn kept_waiting(tasks: &Path) -> Duration {
    let waited = |task: std::fs::DirEntry| {
        let told = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        told.split(' ').nth(1)?.parse().ok()
    };
    let all = std::fs::read_dir(tasks).into_iter().flatten().flatten().filter_map(waited);
    Duration::from_nanos(all.max().unwrap_or(0))
}

/// Finds QEMU: the one that was named, or the one that would be found by its name.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    let name = "qemu-system-x86_64";
    if let Some(path) = named {
        return if path.is_file() {
            Ok(path.to_path_buf())
        } else {
            Err(format!("there is no {}", path.display()))
        };
    }
    crate::build::in_path(name).ok_or_else(|| {
        format!(
            "{name} is not installed. On Debian and Ubuntu: apt-get install qemu-system-x86; \
             on Fedora: dnf install qemu-system-x86; or name one with --qemu PATH"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_word_passes() {
        assert_eq!(End::of(Some(33)), End::Passed);
        assert_eq!(End::of(Some(35)), End::Failed);
        assert_eq!(End::of(Some(65)), End::Failed);
        // QEMU's own success means that the kernel never said anything.
        assert_eq!(End::of(Some(0)), End::Died(Some(0)));
        assert_eq!(End::of(None), End::Died(None));
        let codes = [End::Passed, End::Failed, End::TimedOut, End::Died(Some(0))].map(End::code);
        assert_eq!(codes, [0, 1, 3, 4]);
    }

    #[test]
    fn a_machine_that_sleeps_is_stopped_and_what_starves_is_no_time_of_its_own() {
        let sleeps = || Command::new("sleep").arg("1").spawn().unwrap();
        let wait = |limit| Machine::wait(&mut sleeps(), Duration::from_millis(limit)).unwrap();
        assert_eq!(wait(100), End::TimedOut);
        let tasks = std::env::temp_dir().join(format!("freehold-tasks-{}", std::process::id()));
        for (task, told) in [("1", "5 200 9\n"), ("2", "7 3000000000 1\n"), ("3", "gone")] {
            std::fs::create_dir_all(tasks.join(task)).unwrap();
            std::fs::write(tasks.join(task).join("schedstat"), told).unwrap();
        }
        let [limit, kept] = [Duration::from_secs(2), kept_waiting(&tasks)];
        assert_eq!(kept, Duration::from_secs(3));
        let ends = [4999, 5000].map(|at| is_over(Duration::from_millis(at), limit, || kept));
        assert_eq!(ends, [false, true]);
        assert!(is_over(20 * limit, limit, || 100 * limit));
        std::fs::remove_dir_all(&tasks).unwrap();
        assert_eq!(kept_waiting(&tasks), Duration::ZERO);
    }

    #[test]
    fn a_missing_qemu_is_named_with_what_to_do() {
        let error = find(Some(Path::new("/nowhere/qemu"))).unwrap_err();
        assert!(error.contains("/nowhere/qemu"), "{error}");
    }

    #[test]
    fn the_machine_is_as_asked_for() {
        let machine = Machine {
            qemu: "qemu".into(),
            cpus: 4,
            memory: "256M".to_owned(),
            accelerator: Accelerator::TcgSingle,
            extra: vec!["-initrd".into(), "archive".into()],
        };
        let arguments = machine.arguments(Path::new("kernel"), "cpus=4 bench");
        let has = |name: &str, value: &str| {
            arguments.windows(2).any(|pair| pair[0] == name && pair[1] == value)
        };
        assert!(
            has("-smp", "4")
                && has("-m", "256M")
                && has("-append", "cpus=4 bench")
                && has("-kernel", "kernel")
        );
        assert!(
            has("-accel", "tcg,thread=single") && has("-cpu", "max") && has("-initrd", "archive")
        );
    }
}
