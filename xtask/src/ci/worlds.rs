//! Steps of the lane *worlds*: the whole workspace's tests and documents, the allocator in other
//! systems and on other machines, and what users do with it.

use super::ask;
use super::step::{Heard, Job, Lane, Run, Step};
use crate::build::root;

const WORLD: Step = Step {
    name: "",
    lane: Lane::Worlds,
    title: "",
    minutes: 25,
    beside: false,
    covered_by: None,
    run: sample,
};

pub(super) const STEPS: &[Step] = &[
    Step {
        name: "sample",
        title: "the README's first command: replay the sample trace",
        run: sample,
        ..WORLD
    },
    Step {
        name: "tests",
        title: "the README's second command, and the tests that it leaves out for their length",
        minutes: 30,
        run: tests,
        ..WORLD
    },
    Step {
        name: "docs",
        title: "README and docs say what the commands print ('cargo xtask docs --write' puts it in)",
        run: docs,
        ..WORLD
    },
    Step {
        name: "cells",
        title: "fragmentation: a dozen random cells, another dozen each time",
        run: cells,
        ..WORLD
    },
    Step { name: "poison", title: "the allocator's tests with debug-poison", run: poison, ..WORLD },
    Step {
        name: "c",
        title: "the installed header and libraries from C, C++ and Python, and without a C library",
        run: c,
        ..WORLD
    },
    Step {
        name: "linux",
        title: "the module in a stock Linux under QEMU passes, and fails where it should",
        minutes: 45,
        run: linux,
        ..WORLD
    },
    Step {
        name: "ostd",
        title: "OSTD's own tests on Freehold's frames under QEMU, and a failure where frames are lost",
        run: ostd,
        ..WORLD
    },
    Step {
        name: "dpdk",
        title: "the mempool driver under DPDK's own tests and testpmd",
        run: dpdk,
        ..WORLD
    },
    Step {
        name: "examples",
        title: "the examples, as a user would run them",
        run: examples,
        ..WORLD
    },
    Step { name: "targets", title: "32 bits, bare metal, WebAssembly", run: targets, ..WORLD },
    Step { name: "install", title: "install as a user would", run: install, ..WORLD },
    Step {
        name: "dist",
        title: "completions and a manual page of every command, checksums, the bill of materials",
        run: dist,
        ..WORLD
    },
    Step {
        name: "documentation",
        title: "rustdoc, also of the features that are off by default",
        beside: true,
        run: documentation,
        ..WORLD
    },
    Step {
        name: "adapters",
        title: "each adapter by itself",
        beside: true,
        run: adapters,
        ..WORLD
    },
    Step {
        name: "msrv",
        title: "each crate with the Rust that it says it needs",
        beside: true,
        run: msrv,
        ..WORLD
    },
    Step {
        name: "peers",
        title: "a build with all peers to measure beside",
        beside: true,
        run: peers,
        ..WORLD
    },
    Step {
        name: "peers-in-c",
        title: "LLFree and DPDK's mempool as engines of freehold bench, where they are there",
        beside: true,
        run: peers_in_c,
        ..WORLD
    },
    Step {
        name: "package",
        title: "the packages that the registry would be sent",
        beside: true,
        run: package,
        ..WORLD
    },
    Step {
        name: "dependencies",
        title: "licences, advisories and sources of what the crates depend on (deny.toml)",
        beside: true,
        run: dependencies,
        ..WORLD
    },
];

fn sample(run: &Run) -> Result<(), String> {
    run.cargo("run --release --quiet").must()
}

fn tests(run: &Run) -> Result<(), String> {
    run.cargo("test --quiet --workspace --no-fail-fast").env("FREEHOLD_SECONDS", "1").must()?;
    // What is left out there for its length.
    run.cargo("test --quiet --workspace --test stopped").env("FREEHOLD_SECONDS", "4").must()?;
    // A feature that is off by default.
    run.cargo("test --quiet -p freehold-host --features tracing --lib events::").must()?;
    // Without the longest: `cargo xtask docs --check --all` makes the table that it holds anew.
    run.cargo("test --quiet --workspace --tests --no-fail-fast -- --ignored")
        .words("--skip each_wrong_kernel_is_told_apart")
        .env("FREEHOLD_SECONDS", "1")
        .must()
}

fn docs(run: &Run) -> Result<(), String> {
    xtask(run, "docs --check").must()
}

fn cells(run: &Run) -> Result<(), String> {
    // It says from which seed they are drawn, and fails where an engine loses a frame. Contiguity is
    // printed and not judged (`--gate`): docs/performance.md says in which cells it is less.
    run.cargo("run --quiet --release -p freehold-bench --")
        .words("fragmentation --random 12 --quick --no-progress")
        .must()
}

fn poison(run: &Run) -> Result<(), String> {
    // The library's own tests and the examples in its documentation have nothing to do with it.
    run.cargo("test --quiet -p freehold --features std,debug-poison --tests")
        .env("FREEHOLD_SECONDS", "1")
        .must()
}

fn c(run: &Run) -> Result<(), String> {
    for tool in ["gcc", "clang", "valgrind"] {
        if !ask::has(tool) {
            run.skip(&format!("the C programs with {tool}: it is not installed"));
        }
    }
    let target = crate::build::target().join("c");
    let define = |name: &str, folder: &std::path::Path| format!("{name}={}", folder.display());
    run.program("make", "--silent -C crates/freehold-ffi")
        .words("check check-poison install check-freestanding first-minutes")
        .arg(define("TARGET_DIR", &target))
        .arg(define("DESTDIR", &target.join("installed")))
        .must()
}

/// Another command of this program: not by cargo, which would look whether it has to be built.
fn xtask<'a>(run: &'a Run, words: &str) -> Job<'a> {
    match std::env::current_exe() {
        Ok(program) if program.is_file() => run.program(program, words),
        // Built anew meanwhile.
        _ => run.cargo("xtask").words(words),
    }
}

fn linux(run: &Run) -> Result<(), String> {
    // Whatever it takes: the command itself says SKIPPED where something cannot be had.
    let _ = ask::standard_source(run);
    let runs = [
        (0, "selftest: passed", "--cpus 2 --ops 1000000"),
        (0, "anonymous: passed", "--cpus 2 --anonymous 1000 --timeout 1200"),
        // What must not pass: else the above would mean nothing. A frame freed too often: whoever
        // asks next gets it as a second owner; if nobody asked since, the owner's own free is refused.
        (1, "was handed out twice|was not freed", "--ops 100000 --plant twice"),
        (1, "frames were never freed", "--ops 100000 --plant lose"),
        (1, "somebody wrote to frame", "--ops 100000 --plant scribble"),
        // `--anonymous --plant dirty` is for a person who watches: a process whose memory is not
        // zero may also run for ever.
        (1, "blocks stay taken", "--anonymous 5000 --timeout 1200 --plant keep"),
        (2, "nowhere/qemu", "--qemu nowhere/qemu"),
    ];
    for (status, line, words) in runs {
        let job = xtask(run, "linux --kvm off").words(words);
        if run.expect(status, line, job)? == Heard::Skipped {
            break;
        }
    }
    // A kernel takes too long to compile here: those that somebody has built before are booted. The
    // loads that take longest, or that show the RFC's defect, are for the command by itself.
    for kernel in ["vanilla", "freehold", "rfc"] {
        let job = xtask(run, "linux --cached --kvm off --built").words(kernel);
        let job = job.words("--loads exit,arena,huge,mixed,cache,shells,files,compact");
        run.expect(0, "RESULT: passed", job)?;
    }
    Ok(())
}

fn ostd(run: &Run) -> Result<(), String> {
    let _ = ask::standard_source(run);
    if run.expect(0, "0 failed", xtask(run, "ostd"))? == Heard::AsExpected {
        run.expect(1, "frames_are_freeholds", xtask(run, "ostd --lose"))?;
        run.expect(1, "stale_translations_are_shot_down", xtask(run, "ostd --no-shootdown"))?;
    }
    Ok(())
}

fn dpdk(run: &Run) -> Result<(), String> {
    if !run.program("pkg-config", "--atleast-version=22.11 libdpdk").works() {
        run.skip("the DPDK mempool driver: DPDK 22.11 or later is not installed (apt-get install dpdk-dev libdpdk-dev)");
        return Ok(());
    }
    run.program("make", "--silent -C os/dpdk check")
        .arg(format!("TARGET_DIR={}", crate::build::target().join("c").display()))
        .must()
}

/// The examples of a crate, by name.
fn examples_of(package: &str) -> Vec<String> {
    let folder = root().join("crates").join(package).join("examples");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    names
}

fn examples(run: &Run) -> Result<(), String> {
    for package in ["freehold-vm", "freehold-host"] {
        for name in examples_of(package) {
            let (status, output) = run
                .cargo("run --quiet --release -p")
                .arg(package)
                .words("--example")
                .arg(&name)
                // Wants to be told what to count, under callgrind.
                .words(if name == "arena-instructions" { "-- --list" } else { "" })
                .heard()?;
            if status != 0 {
                return Err(format!("example {name} of {package} ended with {status}\n{output}"));
            }
            run.line(&format!("{package}: {name}"));
        }
    }
    Ok(())
}

fn targets(run: &Run) -> Result<(), String> {
    let check = |words: &str, target: &str| {
        run.cargo("check --quiet").words(words).words("--target").arg(target)
    };
    for target in ["aarch64-unknown-none", "riscv64gc-unknown-none-elf"] {
        if ask::target(run, target) {
            check("-p freehold -p freehold-vm", target).must()?;
        }
    }
    let wasm = "wasm32-unknown-unknown";
    if ask::target(run, wasm) {
        check("-p freehold -p freehold-vm -p freehold-classic", wasm).must()?;
        check("-p freehold-adapters --features buddy,ostd,hermit", wasm).must()?;
    }
    let windows = "x86_64-pc-windows-gnu";
    if ask::target(run, windows) {
        // The arena is Linux's, and says so instead of failing in every file.
        let (_, told) = check("-p freehold-host", windows).heard()?;
        let errors: Vec<&str> = told
            .lines()
            .filter(|line| line.starts_with("error") && !line.contains("could not compile"))
            .collect();
        if errors.len() != 1 || !errors[0].contains("Linux only") {
            return Err(format!(
                "freehold-host should say \"Linux only\" there and nothing else:\n{told}"
            ));
        }
    }
    let thumb = "thumbv7em-none-eabi";
    if ask::target(run, thumb) {
        // It has no atomics of 64 bits, and the first error says so.
        let (_, told) = check("-p freehold", thumb).heard()?;
        let first = told.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        if !first.contains("needs 64-bit atomics") {
            return Err(format!("freehold should begin with \"needs 64-bit atomics\":\n{told}"));
        }
    }
    let small = "i686-unknown-linux-gnu";
    if ask::target(run, small) {
        if !ask::links_32(run) {
            run.skip("the allocator's tests on 32 bits: cc -m32 does not link (Debian, Ubuntu: gcc-multilib)");
            return Ok(());
        }
        run.cargo("test --quiet -p freehold --lib --tests --target")
            .arg(small)
            .env("PROPTEST_CASES", "16")
            .must()?;
    }
    Ok(())
}

fn install(run: &Run) -> Result<(), String> {
    let folder = crate::build::target().join("install");
    run.cargo("install --quiet --path crates/freehold-lab --locked --root").arg(&folder).must()?;
    let freehold = folder.join("bin/freehold");
    run.program(&freehold, "--version").must()?;
    run.program(&freehold, "engines").must()
}

fn dist(run: &Run) -> Result<(), String> {
    // As tests, for which the laboratory is built already. Programs are built by hand.
    run.cargo("test --quiet -p xtask --features dist dist::").must()
}

fn documentation(run: &Run) -> Result<(), String> {
    let doc = |words: &str| {
        run.cargo("doc --quiet --no-deps").words(words).env("RUSTDOCFLAGS", "-D warnings").must()
    };
    doc("--workspace")?;
    doc("-p freehold -p freehold-host -p freehold-adapters -p freehold-ffi --all-features")
}

fn adapters(run: &Run) -> Result<(), String> {
    for feature in ["x86_64", "buddy", "ostd", "hermit", "host"] {
        run.cargo("check --quiet -p freehold-adapters --no-default-features --features")
            .arg(feature)
            .must()?;
    }
    Ok(())
}

fn msrv(run: &Run) -> Result<(), String> {
    xtask(run, "msrv").must()
}

fn peers(run: &Run) -> Result<(), String> {
    if !ask::has("c++") || !ask::has("make") {
        run.skip("the peers need a C++ compiler and make");
        return Ok(());
    }
    run.cargo("check --quiet --features peers -p freehold-bench").must()
}

/// Peers that no registry has, whose sources the lints' step does not see. A tiny bench of each warms
/// it up with its frames stamped.
fn peers_in_c(run: &Run) -> Result<(), String> {
    let mut there = Vec::new();
    let clone = std::env::var_os("LLFREE_C").unwrap_or_default();
    if !std::path::Path::new(&clone).join("src/llfree.c").is_file() {
        run.skip(
            "LLFree beside Freehold: LLFREE_C names no clone of https://github.com/luhsra/llfree-c",
        );
    } else if std::env::var_os("CC").is_none() && !ask::has("clang") {
        run.skip("LLFree beside Freehold: clang is not installed (apt-get install clang)");
    } else {
        there.push("llfree");
    }
    if run.program("pkg-config", "--atleast-version=22.11 libdpdk").works() {
        there.push("dpdk");
    } else {
        run.skip("DPDK's mempool beside Freehold: DPDK 22.11 or later is not installed (apt-get install dpdk-dev libdpdk-dev)");
    }
    if there.is_empty() {
        return Ok(());
    }
    let features = there.join(",");
    let cargo = |words: &str| run.cargo(words).words("-p freehold-bench --features").arg(&features);
    cargo("clippy --quiet --all-targets").words("-- -D warnings").must()?;
    cargo("test --quiet --lib").words("engines::").must()?;
    for engine in there {
        cargo("run --quiet")
            .words("-- --quick --runs 1 --no-progress pair churn -e freehold -e")
            .arg(engine)
            .must()?;
    }
    Ok(())
}

fn package(run: &Run) -> Result<(), String> {
    // Not built again from the package: the other steps build the same files.
    let (_, help) = run.cargo("publish --help").heard()?;
    if help.contains("--workspace") {
        run.cargo("publish --dry-run --workspace --no-verify --allow-dirty --quiet").must()
    } else {
        // Before Rust 1.90.
        run.cargo("package --workspace --exclude xtask --no-verify --allow-dirty --quiet").must()
    }
}

fn dependencies(run: &Run) -> Result<(), String> {
    if !run.cargo("deny --version").works() {
        run.skip("licences and advisories need cargo-deny (cargo install --locked cargo-deny)");
        return Ok(());
    }
    run.cargo("deny --all-features check").must()
}
