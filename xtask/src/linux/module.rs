//! Building: the allocator as one object file without std, the module around it by the kernel's own
//! build, and the guest's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Trouble;
use super::backports;
use super::packages::Kernel;
use super::tools::{output, run};
use crate::build;

/// No SSE, no red zone.
const TARGET: &str = "x86_64-unknown-none";
/// A module lies in the upper 2 GiB and is relocated by the kernel, which knows no global offset
/// table. `core` has to be built in the same way: the one that comes with rustc goes through such a
/// table.
const FLAGS: &str = "-Crelocation-model=static -Ccode-model=kernel -Zplt=yes -Zdirect-access-external-data=yes \
    -Cjump-tables=no";

/// What kind of kernel the allocator goes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A distribution's, as a module: returns and indirect branches go by the kernel's own thunks, as
    /// in the rest of it.
    Module,
    /// One that is compiled here, as a part of it: that one has no thunks, and its unwinder reads
    /// frame pointers.
    BuiltIn,
}

impl Kind {
    fn flags(self) -> &'static str {
        match self {
            Self::Module => {
                "-Zfunction-return=thunk-extern -Zretpoline=yes -Zretpoline-external-thunk=yes"
            }
            Self::BuiltIn => "-Cforce-frame-pointers=yes",
        }
    }

    /// Flags differ, so folders do: neither is built again for the other.
    fn folder(self) -> PathBuf {
        build::target().join(match self {
            Self::Module => "linux/rust",
            Self::BuiltIn => "linux/rust-built-in",
        })
    }
}

/// What the kernel's build needs of the machine: the compiler that the kernel was built with, and
/// what its own checker of object files is linked against.
fn have_what_it_takes(kernel: &Kernel) -> Result<(), Trouble> {
    let variables = fs::read_to_string(kernel.headers.join(".kernelvariables")).unwrap_or_default();
    let compiler = variables
        .split(|c: char| c.is_whitespace() || c == ')')
        .find(|word| word.starts_with("gcc-"));
    if let Some(compiler) = compiler {
        output(Command::new(compiler).arg("--version"))?;
    }
    let objtool = kernel.headers.join("tools/objtool/objtool");
    // 127: the loader did not find a library.
    let status = Command::new(&objtool).arg("--help").output().map(|done| done.status.code());
    if objtool.exists() && !matches!(status, Ok(Some(code)) if code != 127) {
        return Err(Trouble::Missing(format!(
            "{} does not start: apt-get install libelf1",
            objtool.display()
        )));
    }
    Ok(())
}

/// The whole allocator in one object file: the same for every kernel of that kind.
///
/// # Errors
///
/// Where the sources of `core` are missing, or it is not built.
pub(super) fn core_object(folder: &Path, kind: Kind) -> Result<PathBuf, Trouble> {
    let built = kind.folder();
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    if !Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir() {
        return Err(Trouble::Missing(
            "the sources of `core` are not there: rustup component add rust-src".to_owned(),
        ));
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(build::root()).args([
        "rustc",
        "--quiet",
        "--release",
        "--package",
        "freehold-ffi",
        "--lib",
    ]);
    cargo.args(["--config", build::OPTIMISED]);
    cargo.args([
        "--crate-type",
        "staticlib",
        "--no-default-features",
        "--features",
        "panic-handler",
    ]);
    cargo.args(["-Zbuild-std=core", "--target", TARGET, "--target-dir"]).arg(&built);
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_RUSTFLAGS");
    // The options with -Z are there in every rustc, for those who ask in this way.
    cargo
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", format!("{FLAGS} {}", kind.flags()))
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    // Everything in one object: what is not used is left out, `core` included.
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "fat").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    run(&mut cargo)?;
    let library = built.join(TARGET).join("release/libfreehold_ffi.a");
    let members = output(Command::new("ar").arg("t").arg(&library))?;
    let member = members.lines().find(|name| name.starts_with("freehold_ffi-"));
    let member = member.ok_or_else(|| Trouble::Wrong(format!("{} is empty", library.display())))?;
    run(Command::new("ar").current_dir(folder).arg("x").arg(&library).arg(member))?;
    Ok(folder.join(member))
}

fn copy_newer(from: &Path, to: &Path) -> Result<(), Trouble> {
    // What has not changed keeps its time, so that it is not compiled again.
    let bytes = fs::read(from)?;
    if fs::read(to).ok().as_deref() != Some(&bytes) {
        fs::write(to, bytes)?;
    }
    Ok(())
}

/// Builds the module for that kernel; where it is.
///
/// # Errors
///
/// Where a compiler or something else is missing, or the build fails.
pub(crate) fn module(folder: &Path, kernel: &Kernel) -> Result<PathBuf, Trouble> {
    if kernel.system.is_none() {
        have_what_it_takes(kernel)?;
    }
    let core = core_object(folder, Kind::Module)?;
    // Where the build sees itself, and where we see it.
    let (inside, there) = match &kernel.system {
        Some(system) => (PathBuf::from("/freehold"), system.join("freehold")),
        None => (folder.join("module"), folder.join("module")),
    };
    let sources = build::root().join("os/linux");
    fs::create_dir_all(there.join("include"))?;
    for part in [".", "include"] {
        for entry in fs::read_dir(sources.join(part))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                copy_newer(&entry.path(), &there.join(part).join(entry.file_name()))?;
            }
        }
    }
    let header = build::root().join("crates/freehold-ffi/include/freehold.h");
    copy_newer(&header, &there.join("include/freehold.h"))?;
    copy_newer(&core, &there.join("core.o"))?;
    fs::remove_file(&core)?;
    // The kernel's build notes here how an object was made; this one was not made by it.
    fs::write(there.join(".core.o.cmd"), "")?;
    let mut make = match &kernel.system {
        Some(system) => backports::within(system, &["make"]),
        None => Command::new("make"),
    };
    make.args(["--silent", "-j2", "-C"])
        .arg(&kernel.headers)
        .arg(format!("M={}", inside.display()))
        .arg("modules");
    run(&mut make)?;
    let module = there.join("freehold.ko");
    let stripped = folder.join("freehold.ko");
    run(Command::new("objcopy").arg("--strip-debug").arg(&module).arg(&stripped))?;
    Ok(stripped)
}

/// Compiles the guest's programs; their names and where they are.
///
/// # Errors
///
/// Where there is no C compiler, or none for static programs.
pub(crate) fn programs(folder: &Path) -> Result<Vec<(String, PathBuf)>, Trouble> {
    let mut programs = Vec::new();
    for entry in fs::read_dir(build::root().join("os/linux/user"))? {
        let source = entry?.path();
        if source.extension().is_some_and(|extension| extension == "c") {
            programs.push(program(folder, &source)?);
        }
    }
    Ok(programs)
}

/// Compiles one of them; its name and where it is.
///
/// # Errors
///
/// As [`programs`].
pub(super) fn program(folder: &Path, source: &Path) -> Result<(String, PathBuf), Trouble> {
    program_of(folder, &[source])
}

/// Compiles one of several files; its name is the first one's.
///
/// # Errors
///
/// As [`programs`].
pub(super) fn program_of(folder: &Path, sources: &[&Path]) -> Result<(String, PathBuf), Trouble> {
    let there = folder.join("user");
    fs::create_dir_all(&there)?;
    let name = sources.first().and_then(|source| source.file_stem()).unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let program = there.join(&name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-o"])
        .arg(&program)
        .args(sources);
    run(&mut cc)?;
    Ok((name, program))
}
