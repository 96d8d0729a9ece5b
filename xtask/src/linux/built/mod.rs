//! `cargo xtask linux --built`: Linux compiled here, with the page allocator as it is, with the
//! RFC's, or with Freehold asked first; booted in QEMU, where each counts what its own allocator
//! does under the same loads. What comes out of it: docs/linux.md.

mod boots;
mod kernel;
mod record;
mod rules;
mod source;
mod table;
mod thread;
mod tree;

use std::fs;
use std::path::Path;

use clap::ValueEnum;

use super::guest::Guest;
use super::{Arguments, Trouble};
use crate::build;
use crate::qemu::{self, Accelerator, End, Machine};
use crate::run::Kvm;

/// Whose page allocator a kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Design {
    Vanilla,
    Rfc,
    Freehold,
}

impl Design {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Rfc => "rfc",
            Self::Freehold => "freehold",
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
    /// One after the other, and a table of all.
    All,
}

impl Built {
    fn designs(self) -> &'static [Design] {
        match self {
            Self::Vanilla => &[Design::Vanilla],
            Self::Rfc => &[Design::Rfc],
            Self::Freehold => &[Design::Freehold],
            Self::All => &[Design::Vanilla, Design::Freehold, Design::Rfc],
        }
    }
}

/// Builds and boots them; how the worst of them ended.
///
/// # Errors
///
/// Where something that every kernel needs is missing, or something that should work does not.
pub(super) fn run(arguments: &Arguments, built: Built) -> Result<End, Trouble> {
    let folder = build::target().join("linux/built");
    fs::create_dir_all(&folder)?;
    // The build's notes have whole paths in them.
    let folder = folder.canonicalize()?;
    let qemu = qemu::find(arguments.qemu.as_deref()).map_err(Trouble::Missing)?;
    let mut rows = Vec::new();
    let mut worst = End::Passed;
    let mut missing = None;
    for &design in built.designs() {
        let image = match image(arguments, &folder, design) {
            Ok(image) => image,
            // The others may be had.
            Err(Trouble::Missing(why)) => {
                eprintln!("SKIPPED: {} was not built: {why}", design.name());
                missing = Some(why);
                continue;
            }
            Err(wrong) => return Err(wrong),
        };
        let machine = Machine {
            qemu: qemu.clone(),
            cpus: arguments.cpus,
            memory: format!("{}M", arguments.memory.unwrap_or(2560)),
            accelerator: accelerator(arguments),
            extra: Vec::new(),
        };
        eprintln!(
            "{}: Linux {}, {} CPUs, {}, {}",
            design.name(),
            source::VERSION,
            machine.cpus,
            machine.memory,
            machine.accelerator.describe()
        );
        let busybox = folder.join("tools/bin/busybox");
        if let Some(to) = &arguments.record {
            let archive = boots::archive(&folder, &busybox, &record::programs(&folder)?)?;
            let limit = arguments.timeout.unwrap_or(1800);
            let end = record::record(&machine, &Guest { image, archive }, design, to, limit)?;
            if end != End::Passed {
                worst = end;
            }
            continue;
        }
        let archive = boots::archive(&folder, &busybox, &[])?;
        let guest = Guest { image, archive };
        for boot in 1..=arguments.boots {
            let (end, counted) =
                boots::boot(&machine, &guest, design, boot, arguments.timeout.unwrap_or(900))?;
            rows.extend(counted);
            if end != End::Passed {
                worst = end;
            }
        }
    }
    if arguments.record.is_some() {
        return missing.map_or(Ok(worst), |why| Err(Trouble::Missing(why)));
    }
    if rows.is_empty() && worst == End::Passed {
        return Err(Trouble::Missing(missing.unwrap_or_default()));
    }
    let json = table::json(&rows)?;
    let file = build::target().join("linux/built.json");
    fs::write(&file, &json)?;
    if arguments.json {
        println!("{json}");
    } else {
        print!("{}\n{}", table::table(&rows), table::others(&rows));
    }
    eprintln!("all rows: {}", file.display());
    Ok(worst)
}

/// The kernel that is to be booted: built now, or, where only those that are there are asked for,
/// what is there.
fn image(
    arguments: &Arguments,
    folder: &Path,
    design: Design,
) -> Result<std::path::PathBuf, Trouble> {
    if arguments.cached {
        let kept = kernel::kept(folder, design);
        return if kept.exists() {
            Ok(kept)
        } else {
            Err(Trouble::Missing(format!(
                "{} is not there, and --cached builds none",
                kept.display()
            )))
        };
    }
    let image = kernel::image(folder, design)?;
    for (file, added, removed) in &image.lines {
        eprintln!("{}: {file}: {added} lines more, {removed} fewer", design.name());
    }
    Ok(image.path)
}

/// KVM where it is asked for: what boots there is another matter than for the kernels of
/// distributions, so it is not tried.
fn accelerator(arguments: &Arguments) -> Accelerator {
    match arguments.kvm {
        Kvm::On => Accelerator::Kvm,
        Kvm::Off | Kvm::Auto => arguments.threads.accelerator(arguments.cpus),
    }
}
