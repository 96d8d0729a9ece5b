//! The guest: its first file system, and its run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::cpio::Archive;
use super::packages::Kernel;
use super::{Trouble, compiler, module};
use crate::build;
use crate::qemu::{End, Machine};

/// How long Linux may take to say that it has started, where the hardware runs it.
const PROBE: Duration = Duration::from_secs(20);

/// For the kernel's command line, what it has to find mistakes with and leaves off: checks of each
/// object that it allocates, with red zones around them, and, in kernels from 6.12 on, a guarded
/// page for one of them every tenth of a second.
pub(crate) const DEBUGGING: &str = "slub_debug=FZ kfence.sample_interval=100";

/// Kernel and file system, ready to boot.
pub(crate) struct Guest {
    pub(crate) image: PathBuf,
    pub(crate) archive: PathBuf,
}

/// Builds all that the guest needs; with a compiler and a swap area's driver, where it is to run
/// `more` than the module's own tests.
///
/// # Errors
///
/// Where something is missing, or does not build.
pub(crate) fn build(folder: &Path, kernel: &Kernel, more: bool) -> Result<Guest, Trouble> {
    let module = module::module(folder, kernel)?;
    let mut archive = Archive::default();
    for name in ["bin", "dev", "proc", "sys"] {
        archive.folder(name);
    }
    archive.program("init", &fs::read(build::root().join("os/linux/user/init"))?);
    archive.program("bin/busybox", &fs::read(&kernel.busybox)?);
    archive.program("freehold.ko", &fs::read(module)?);
    for (name, program) in module::programs(folder)? {
        archive.program(&name, &fs::read(program)?);
    }
    if more {
        for name in ["lib", "lib64", "tmp"] {
            archive.folder(name);
        }
        archive.program("brd.ko", &kernel.driver("block/brd.ko")?);
        for (name, file) in compiler::carried(folder, compiler::MANY)? {
            archive.program(&name, &fs::read(file)?);
        }
    }
    let path = folder.join("initramfs.cpio");
    fs::write(&path, archive.end())?;
    Ok(Guest { image: kernel.image.clone(), archive: path })
}

/// The kernel's command line. Memory that is allocated is not zeroed by the kernel: that would be
/// measured, too, and not of ours. Nor does it give up where a busy machine delays its timers.
pub(crate) fn command_line(words: &[String]) -> String {
    format!(
        "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check init_on_alloc=0 {}",
        words.join(" ")
    )
}

/// Whether Linux boots under KVM here, really: not everything that calls itself KVM runs an
/// ordinary kernel. Asked once.
pub(crate) fn kvm_works(folder: &Path, machine: &Machine, guest: &Guest) -> bool {
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        eprintln!("KVM is not used: /dev/kvm: {error}");
        return false;
    }
    let remembered = folder.join("kvm");
    let known = fs::read_to_string(&remembered).ok();
    let works = match known.as_deref() {
        Some("works\n") => true,
        Some("does not work\n") => false,
        _ => {
            let line = command_line(&["fh.probe=1".to_owned()]);
            machine.run(&guest.image, &line, PROBE, false) == Ok(End::Passed)
        }
    };
    // What is not remembered is asked again.
    let _ = fs::write(&remembered, if works { "works\n" } else { "does not work\n" });
    if !works {
        let seconds = PROBE.as_secs();
        let file = remembered.display();
        eprintln!(
            "KVM is not used: Linux does not boot under it here within {seconds} s (remembered in {file})"
        );
    }
    works
}

/// Runs the guest; how it ended, and each line that it printed. `show` says which of them are shown
/// at once.
///
/// # Errors
///
/// Where QEMU cannot be started.
pub(crate) fn boot(
    machine: &Machine,
    guest: &Guest,
    line: &str,
    limit: Duration,
    show: impl Fn(&str) -> bool + Send + 'static,
) -> Result<(End, Vec<String>), String> {
    let mut child = machine.start(&guest.image, line, Some(Stdio::piped()))?;
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
