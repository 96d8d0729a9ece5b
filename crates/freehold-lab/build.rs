//! The commit that the program says it was built from, and a peer written in C that no registry of
//! Rust has: what the feature `llfree` compiles.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=FREEHOLD_BUILT_FROM={}", commit().unwrap_or_default());
    #[cfg(feature = "llfree")]
    llfree::compile();
}

/// Where the program's own code is.
const SOURCES: [&str; 4] =
    ["src", "../freehold/src", "../freehold-classic/src", "../freehold-trace/src"];

/// ` (COMMIT)`, with a `+` where the sources were changed since: out of Git where they are its,
/// else out of what `cargo package` leaves in a package. Builds without optimisation, which are for
/// tests, do not say: each commit would have them built again.
fn commit() -> Option<String> {
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return Some(" (built for tests)".to_owned());
    }
    let git = |arguments: &[&str]| {
        let done = Command::new("git").args(arguments).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_some() {
        let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
        for path in SOURCES.into_iter().chain([&*log]) {
            println!("cargo::rerun-if-changed={path}");
        }
        let changed = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat())?;
        let mark = if changed.is_empty() { "" } else { "+" };
        return Some(format!(" ({}{mark})", git(&["rev-parse", "--short=12", "HEAD"])?));
    }
    let packaged = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, sha) = packaged.split_once("\"sha1\": \"")?;
    Some(format!(" ({})", sha.get(..12)?))
}

/// Ends the build with what is missing, without a panic's backtrace.
#[cfg(feature = "llfree")]
fn fail(text: &str) -> ! {
    eprintln!("{text}");
    std::process::exit(1);
}

/// LLFree, out of a clone of its own repository, with our few calls in one unit.
///
/// As its Makefile builds a release (clang, `-march=native`), but for more than it asks: level 3,
/// no assertions, and one unit, in which its compiler inlines from file to file. A pair takes half
/// as long as in what the Makefile builds.
#[cfg(feature = "llfree")]
mod llfree {
    use std::path::PathBuf;

    const SHIM: &str = "src/bench/engines/llfree_calls.c";
    const HELP: &str = "The feature llfree measures LLFree beside Freehold and needs its sources \
                        in C:\n\n    \
        git clone https://github.com/luhsra/llfree-c\n    \
        export LLFREE_C=\"$PWD/llfree-c\"\n\nand clang, or CC naming a gcc of version 13 or newer.";

    pub(super) fn compile() {
        for name in ["LLFREE_C", "LLFREE_MARCH", "CC"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        println!("cargo::rerun-if-changed={SHIM}");
        let clone = std::env::var_os("LLFREE_C").map(PathBuf::from);
        let Some(clone) = clone.filter(|clone| clone.join("src/llfree.c").is_file()) else {
            super::fail(&format!("LLFREE_C names no folder that has src/llfree.c. {HELP}"));
        };
        println!("cargo::rerun-if-changed={}", clone.display());
        // Valgrind does not know all of a new processor's instructions; x86-64-v3 is what it knows.
        let march = std::env::var("LLFREE_MARCH").unwrap_or_else(|_| "native".to_owned());
        let mut build = cc::Build::new();
        if std::env::var_os("CC").is_none() {
            build.compiler("clang");
        }
        build
            .file(SHIM)
            .includes(["src", "include", "std"].map(|folder| clone.join(folder)))
            .std("c11")
            .opt_level(3)
            .debug(false)
            .warnings(false)
            .pic(false)
            .flag("-fPIE")
            .flag("-fomit-frame-pointer")
            .flag(format!("-march={march}"));
        ["STD", "NO_LOG", "NDEBUG"].into_iter().for_each(|name| _ = build.define(name, None));
        if let Err(error) = build.try_compile("freehold_llfree") {
            super::fail(&format!("{error}\n{HELP}"));
        }
    }
}
