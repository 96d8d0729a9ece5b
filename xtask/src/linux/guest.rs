//! A guest of QEMU: what boots, and its run.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use crate::qemu::{End, Machine};

/// Kernel and file system, ready to boot.
pub(crate) struct Guest {
    pub(crate) image: PathBuf,
    pub(crate) archive: PathBuf,
}

/// The kernel's command line. Memory that is allocated is not zeroed by the kernel: that would be
/// measured, too, and not of ours. Nor does it give up where a busy machine delays its timers.
pub(crate) fn command_line(words: &[String]) -> String {
    format!(
        "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check init_on_alloc=0 {}",
        words.join(" ")
    )
}

/// Runs the guest; how it ended, and each line that it printed. `show` says which of them are shown
/// at once.
pub(crate) fn boot(
    machine: &Machine,
    guest: &Guest,
    line: &str,
    limit: Duration,
    show: impl Fn(&str) -> bool + Send + 'static,
) -> Result<(End, Vec<String>), String> {
    let mut child = machine.start(&guest.image, line, Stdio::piped())?;
    let stdout = child.stdout.take().ok_or("QEMU has no output")?;
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if show(&line) {
                println!("{line}");
            }
            lines.push(line);
        }
        lines
    });
    let end = Machine::wait(&mut child, limit)?;
    let lines = reader.join().map_err(|_| "the guest's output was not read".to_owned())?;
    Ok((end, lines))
}
