//! Peers written in C that no registry of Rust has: what the features `llfree` and `dpdk` compile.
//! Without them there is nothing to do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "llfree")]
    llfree::compile();
    #[cfg(feature = "dpdk")]
    dpdk::compile();
}

/// Ends the build with what is missing, without a panic's backtrace.
#[cfg(any(feature = "llfree", feature = "dpdk"))]
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

/// Our few calls into DPDK, whose own are inline functions of its headers; DPDK itself is linked
/// from where pkg-config says it is.
#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    const SHIM: &str = "src/bench/engines/dpdk_calls.c";
    const HELP: &str = "The feature dpdk measures DPDK's mempool beside Freehold and needs DPDK \
                        22.11 or newer: on \
        Debian\n\n    apt-get install libdpdk-dev dpdk-dev pkg-config";

    fn asked(words: &[&str]) -> String {
        let program = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
        let done = Command::new(&program).args(words).arg("libdpdk").output();
        match done {
            Ok(done) if done.status.success() => {
                String::from_utf8_lossy(&done.stdout).trim().to_owned()
            }
            Ok(done) => super::fail(&format!("{}{HELP}", String::from_utf8_lossy(&done.stderr))),
            Err(error) => super::fail(&format!("{program}: {error}. {HELP}")),
        }
    }

    pub(super) fn compile() {
        println!("cargo::rerun-if-env-changed=PKG_CONFIG");
        println!("cargo::rerun-if-changed={SHIM}");
        asked(&["--atleast-version=22.11"]);
        let mut build = cc::Build::new();
        build.file(SHIM).std("gnu11").opt_level(3).debug(false).warnings(false);
        // Among them the processor that DPDK's own inline functions need.
        asked(&["--cflags"]).split_whitespace().for_each(|flag| _ = build.flag(flag));
        build.compile("freehold_dpdk");
        println!("cargo::rustc-link-search=native={}", asked(&["--variable=libdir"]));
        // Of its many libraries those that a mempool is made of.
        ["rte_mempool", "rte_eal"].into_iter().for_each(|library| {
            println!("cargo::rustc-link-lib=dylib={library}");
        });
    }
}
