//! A kernel of ours: configured by `tinyconfig` and our fragment, built by the kernel's own make.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::super::Trouble;
use super::super::objects;
use super::super::tools::run;
use super::readers::Readers;
use super::{Design, Kind, series, source, tree};
use crate::build;

/// How many objects are compiled between two lines of progress.
const STEP: usize = 50;

/// Where that kernel's image is kept.
pub(super) fn kept(folder: &Path, kind: &Kind) -> PathBuf {
    folder.join("kernels").join(kind.name())
}

/// Builds that kernel in `folder`, or takes the image that is there where nothing has changed.
///
/// # Errors
///
/// [`Trouble::Missing`] where the source, a tool or the RFC cannot be had; whatever fails to build.
pub(super) fn image(folder: &Path, kind: &Kind) -> Result<PathBuf, Trouble> {
    let design = kind.design;
    // Objects of other options are kept: a compiler takes minutes for all of them.
    let make = Make::of(folder, &format!("objects{}", kind.suffix()))?;
    let source = &make.source;
    let mut change = tree::change(kind, folder, source)?;
    if kind.rust {
        rust_is_there(&make)?;
        change.added.extend(series::crates()?);
    } else if design == Design::Freehold {
        let core = objects::core_object(folder)?;
        change.added.insert("core.o_shipped".to_owned(), fs::read(&core)?);
        fs::remove_file(core)?;
    }
    let fragment = fragment(kind)?;
    let mut inputs = DefaultHasher::new();
    (source::VERSION, &change.changed, &change.added, &fragment).hash(&mut inputs);
    let inputs = format!("{:016x}\n", inputs.finish());
    let path = kept(folder, kind);
    let stamp = folder.join("kernels").join(format!("{}.inputs", kind.name()));
    if path.exists() && fs::read_to_string(&stamp).ok().as_ref() == Some(&inputs) {
        return Ok(path);
    }
    tree::lay(&change, folder, source)?;
    if design == Design::Freehold {
        let list = build::root().join("os/linux/built/readers.json");
        Readers::read(&list, &tree::rule_names()?)?.judge(source)?;
    }
    configure(&make, &fragment)?;
    make.kernel(&kind.name())?;
    fs::create_dir_all(folder.join("kernels"))?;
    fs::copy(make.objects.join("arch/x86/boot/bzImage"), &path)?;
    fs::write(stamp, inputs)?;
    Ok(path)
}

/// Whether the kernel would take the machine's rustc, sources of `core` and bindgen.
fn rust_is_there(make: &Make) -> Result<(), Trouble> {
    let told = run(make.command("rustavailable").arg("-s"));
    told.map_err(|why| Trouble::Missing(format!("the kernel's Rust: {why}")))
}

/// The options: of every kernel, of its allocator and of its checks.
fn fragment(kind: &Kind) -> Result<String, Trouble> {
    let ours = build::root().join("os/linux/built");
    let mut fragment = fs::read_to_string(ours.join("kernel.config"))?;
    if kind.design == Design::Freehold {
        fragment += "CONFIG_PAGE_ALLOC_FREEHOLD=y\n";
    }
    if kind.rust {
        // As in every other build of the allocator that is measured.
        fragment += "CONFIG_RUST=y\nCONFIG_RUST_OVERFLOW_CHECKS=n\n";
    }
    for check in &kind.checks {
        fragment += &fs::read_to_string(ours.join(format!("{}.config", check.name())))?;
    }
    Ok(fragment)
}

/// The kernel's make, with what it needs.
pub(super) struct Make {
    pub(super) tools: PathBuf,
    source: PathBuf,
    pub(super) objects: PathBuf,
}

impl Make {
    /// One that builds into a folder of that name.
    pub(super) fn of(folder: &Path, objects: &str) -> Result<Self, Trouble> {
        let (tools, source) = (source::tools(folder)?, source::source(folder)?);
        Ok(Self { tools, source, objects: folder.join(objects) })
    }

    /// At the lowest priority but one: it takes minutes.
    pub(super) fn command(&self, target: &str) -> Command {
        let binaries = self.tools.join("usr/bin");
        let mut path = binaries.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut make = Command::new("nice");
        make.args(["-n", "10", "make", "-C"]).arg(&self.source);
        make.arg(format!("O={}", self.objects.display())).args(["ARCH=x86_64", target]);
        make.env("PATH", path)
            .env("M4", binaries.join("m4"))
            .env("BISON_PKGDATADIR", self.tools.join("usr/share/bison"))
            // Who calls cargo from a make of his own does not mean this one.
            .env_remove("MAKEFLAGS");
        make
    }

    /// Compiles and links, and says how far it is.
    fn kernel(&self, name: &str) -> Result<(), Trouble> {
        let jobs =
            std::env::var("CARGO_BUILD_JOBS").ok().filter(|jobs| jobs.parse::<u32>().is_ok());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = jobs.unwrap_or_else(|| cores.to_string());
        let started = Instant::now();
        eprintln!("building {name}: 700 objects the first time, some minutes");
        let mut make = self.command("bzImage");
        let log = self.objects.join("make.log");
        make.arg(format!("-j{jobs}")).stdout(Stdio::piped()).stderr(fs::File::create(&log)?);
        let mut child = make
            .spawn()
            .map_err(|error| Trouble::Missing(format!("make cannot be run: {error}")))?;
        let mut objects = 0;
        let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            objects += usize::from(line.trim_start().starts_with("CC "));
            if objects % STEP == 0 && line.trim_start().starts_with("CC ") {
                eprintln!("  {objects} objects, {:.0} s", started.elapsed().as_secs_f64());
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        if !child.wait()?.success() {
            let said = fs::read_to_string(&log)?;
            let lines: Vec<&str> = said.lines().collect();
            let (last, log) = (lines[lines.len().saturating_sub(30)..].join("\n"), log.display());
            return Err(Trouble::Wrong(format!("{name} is not built ({log}):\n{last}")));
        }
        eprintln!("built {name}: {objects} objects in {seconds:.0} s");
        Ok(())
    }
}

/// `tinyconfig` and the fragment, unless it is configured so already.
fn configure(make: &Make, fragment: &str) -> Result<(), Trouble> {
    fs::create_dir_all(&make.objects)?;
    let known = make.objects.join("fragment");
    if fs::read_to_string(&known).is_ok_and(|known| known == fragment) {
        return Ok(());
    }
    run(make.command("tinyconfig").arg("-s"))?;
    let config = make.objects.join(".config");
    let tiny = fs::read_to_string(&config)?;
    let wanted: Vec<String> = settings(fragment).collect();
    fs::write(&config, format!("{tiny}\n{}\n", wanted.join("\n")))?;
    run(make.command("olddefconfig").arg("-s"))?;
    let got = fs::read_to_string(&config)?;
    let refused: Vec<&str> = refused(&wanted, &got);
    if !refused.is_empty() {
        let why = format!("the kernel's own rules refuse {}", refused.join(", "));
        return Err(Trouble::Wrong(format!("{why}: os/linux/built/*.config")));
    }
    fs::write(known, fragment)?;
    Ok(())
}

/// The fragment's options, as a `.config` has them.
fn settings(fragment: &str) -> impl Iterator<Item = String> {
    let options = fragment.lines().map(str::trim).filter(|line| line.starts_with("CONFIG_"));
    options.map(|line| match line.strip_suffix("=n") {
        Some(option) => format!("# {option} is not set"),
        None => line.to_owned(),
    })
}

/// Which of them a `.config` does not have. An option that is off may be unknown to it.
fn refused<'a>(wanted: &'a [String], config: &str) -> Vec<&'a str> {
    let has = |line: &str| match line.strip_prefix("# ") {
        Some(off) => {
            let option = off.trim_end_matches(" is not set");
            !config.lines().any(|line| line.starts_with(&format!("{option}=")))
        }
        None => config.lines().any(|there| there == line),
    };
    wanted.iter().map(String::as_str).filter(|line| !has(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::built::Check;

    #[test]
    fn checks_add_their_options_to_those_of_every_kernel() {
        let options = |checks: &[Check]| {
            let fragment = fragment(&Kind::of(Design::Vanilla, checks).unwrap()).unwrap();
            settings(&fragment).collect::<Vec<String>>()
        };
        let (plain, checked) = (options(&[]), options(&[Check::Locking, Check::Kasan]));
        assert!(checked.starts_with(&plain));
        for option in ["CONFIG_PROVE_LOCKING=y", "CONFIG_KASAN=y"] {
            assert!(checked.contains(&option.to_owned()) && !plain.contains(&option.to_owned()));
        }
        assert!(options(&[Check::Kcsan]).contains(&"CONFIG_KCSAN=y".to_owned()));
    }

    #[test]
    fn what_the_kernel_refuses_is_told() {
        let wanted: Vec<String> =
            settings("# why\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_C=4\nCONFIG_D=n\n").collect();
        let [b, d] = ["# CONFIG_B is not set", "# CONFIG_D is not set"];
        assert_eq!(wanted, ["CONFIG_A=y", b, "CONFIG_C=4", d]);
        let got = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=4\nCONFIG_DD=y\n";
        assert_eq!(refused(&wanted, got), [""; 0]);
        let got = "CONFIG_A=m\nCONFIG_C=8\nCONFIG_D=y\n";
        assert_eq!(refused(&wanted, got), ["CONFIG_A=y", "CONFIG_C=4", d]);
    }
}
