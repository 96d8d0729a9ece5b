//! Steps of the lane *proofs*: what shows that the allocator is right, beyond its ordinary tests.
//! `proofs/README.md` says what each shows. Those that build in target folders of their own run beside
//! the others.

use super::ask;
use super::step::{Job, Lane, Run, Step};
use crate::build::{OPTIMISED, root, target};

const PROOF: Step = Step {
    name: "",
    lane: Lane::Proofs,
    title: "",
    minutes: 30,
    beside: false,
    covered_by: None,
    run: loom,
};

pub(super) const STEPS: &[Step] = &[
    Step {
        name: "model",
        title: "the protocol as a model: every interleaving of a few calls, each rule left out, the long searches too",
        run: model,
        ..PROOF
    },
    Step {
        name: "loom",
        title: "every interleaving of the lock-free protocols, up to two preemptions and 45 seconds each; three and all by hand",
        beside: true,
        run: loom,
        ..PROOF
    },
    Step {
        name: "shuttle",
        title: "random schedules of the whole allocator on four CPUs, 2,000 a test",
        beside: true,
        run: shuttle,
        ..PROOF
    },
    Step {
        name: "histories",
        title: "random histories against a model, more of them than the tests run",
        run: histories,
        ..PROOF
    },
    Step {
        name: "torture",
        title: "everything at once on more threads than cores: on two zones, on four with holes, on a tebibyte",
        run: torture,
        ..PROOF
    },
    Step {
        name: "valgrind",
        title: "the arena's tests under valgrind",
        minutes: 10,
        run: valgrind,
        ..PROOF
    },
    Step {
        name: "asan",
        title: "the allocator's and the arena's tests under AddressSanitizer",
        beside: true,
        run: asan,
        ..PROOF
    },
    Step {
        name: "tsan",
        title: "the allocator's and the arena's tests under ThreadSanitizer",
        minutes: 30,
        beside: true,
        run: tsan,
        ..PROOF
    },
    Step {
        name: "fuzz",
        title: "a minute of fuzzing from the committed corpora, under AddressSanitizer",
        beside: true,
        run: fuzz,
        ..PROOF
    },
    Step {
        name: "mutants",
        title: "the lists of wrong lines still fit the sources",
        run: mutants,
        ..PROOF
    },
];

fn model(run: &Run) -> Result<(), String> {
    let folder = "proofs/model";
    run.cargo_in(folder, "clippy --quiet --all-targets -- -D warnings").must()?;
    run.cargo_in(folder, "test --quiet --test search -- --include-ignored").must()
}

fn loom(run: &Run) -> Result<(), String> {
    run.cargo("test --quiet -p freehold-classic -p freehold -p freehold-vm --lib --release loom_")
        .words("--config")
        .arg(OPTIMISED)
        .env("LOOM_MAX_PREEMPTIONS", "2")
        .env("LOOM_MAX_DURATION", "45")
        .env("RUSTFLAGS", "--cfg loom")
        .target("loom")
        .must()
}

fn shuttle(run: &Run) -> Result<(), String> {
    run.cargo("test --quiet -p freehold --lib --release")
        .words("--config")
        .arg(OPTIMISED)
        .words("-- shuttle_ stopped_")
        .env("SHUTTLE_SCHEDULES", "2000")
        .env("RUSTFLAGS", "--cfg shuttle")
        .target("shuttle")
        .must()
}

fn histories(run: &Run) -> Result<(), String> {
    // The whole workspace's tests are built already: of one crate alone they have other features,
    // and would be built again.
    let cases = |filter: &str, cases: &str| {
        run.cargo("test --quiet --workspace --test suite")
            .arg(filter)
            .env("PROPTEST_CASES", cases)
            .must()
    };
    cases("model_ops::", "300")?;
    cases("byte_histories::", "2000")
}

fn torture(run: &Run) -> Result<(), String> {
    let folder = "proofs/torture";
    run.cargo_in(folder, "clippy --quiet --all-targets -- -D warnings").must()?;
    run.cargo_in(folder, "test --quiet").must()?;
    let machines = ["", " --map sparse --aged", " --memory 1T --used 256M"];
    machines.iter().try_for_each(|machine| {
        let soak = format!("run --quiet --release -- --seconds 20 --no-progress{machine}");
        run.cargo_in(folder, &soak).must()
    })
}

/// Adds the named test programs of `freehold-host` that there are.
fn host_tests<'a>(run: &Run, mut job: Job<'a>, names: &[&str]) -> Job<'a> {
    let folder = root().join("crates/freehold-host/tests");
    for name in names {
        if folder.join(format!("{name}.rs")).is_file() || folder.join(name).is_dir() {
            job = job.words("--test").arg(name);
        } else {
            run.skip(&format!("freehold-host has no test program called {name} any more"));
        }
    }
    job
}

/// What of the arena's tests is short enough for valgrind and AddressSanitizer: modules of `suite`,
/// and all of the other programs named.
const SAFE_ALONE: &str = "-- --skip examples:: --skip model:: --skip real_memory_threads:: --skip release:: --skip threads:: \
     --skip virtual_memory::";

fn valgrind(run: &Run) -> Result<(), String> {
    if !ask::has("valgrind") {
        run.skip("the arena under valgrind: it is not installed");
        return Ok(());
    }
    let runner =
        format!("CARGO_TARGET_{}_RUNNER", ask::host().replace('-', "_").to_ascii_uppercase());
    // valgrind has no seccomp(2), by which calls are made to fail: the tests of faults_injected say
    // there that they skip.
    let job = run
        .cargo("test --quiet -p freehold-host")
        .env(&runner, "valgrind --quiet --error-exitcode=9");
    host_tests(run, job, &["suite", "faults_injected"]).words(SAFE_ALONE).must()
}

fn asan(run: &Run) -> Result<(), String> {
    if !ask::nightly(run) {
        run.skip("AddressSanitizer needs a nightly toolchain, and there is none");
        return Ok(());
    }
    if !ask::sanitized_host() {
        run.skip(&format!("AddressSanitizer is not set up for {} here", ask::host()));
        return Ok(());
    }
    // Leaks are not looked for: tests leak the metadata of their allocators on purpose. What an
    // unused arena has resident is left out: shadow memory is resident beside it.
    let test = |package: &str| {
        run.cargo("+nightly test --quiet --target")
            .arg(ask::host())
            .words("-p")
            .arg(package)
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .target("asan")
    };
    test("freehold").words("--lib --tests").must()?;
    // Each call with each error: what a failure leaves behind is what this is to see.
    host_tests(run, test("freehold-host"), &["suite", "resize", "faults_injected"])
        .env("FREEHOLD_SECONDS", "1")
        .words(SAFE_ALONE)
        .words("--skip an_arena_that_nobody_uses")
        .must()
}

/// What of the arena's tests ThreadSanitizer runs. It needs for itself what most of the others are
/// about:
///
/// | left out | why |
/// |---|---|
/// | `faults_injected` | refuses system calls, ThreadSanitizer's own among them |
/// | `kernel`, `mapping_limits` | limits on memory, descriptors and mappings, filters, and children that are forked while threads run |
/// | `real_memory` | forked children, of which some must end by SIGSEGV; its million steps are of one thread |
/// | `resize` | counts what the process has resident |
/// | `stopped` | a signal is put off until its thread makes a call that blocks: nobody is stopped in the middle of a call |
/// | `locked_memory_stays` (in `suite`) | mlock(2) is made to do nothing |
const UNDER_TSAN: [&str; 1] = ["suite"];

fn tsan(run: &Run) -> Result<(), String> {
    if !ask::sanitized_host() {
        run.skip(&format!("ThreadSanitizer is not set up for {} here", ask::host()));
        return Ok(());
    }
    if !ask::standard_source(run) {
        run.skip(
            "ThreadSanitizer needs the standard library's source: rustup component add rust-src",
        );
        return Ok(());
    }
    // The standard library is built with it, too: otherwise its locks and channels are not seen, and
    // all that they order is reported. ThreadSanitizer knows no fences. Where the allocator relies on
    // one (the owner's door and its heavy barrier, recall's acquire fence), both sides are accesses to
    // atomics, which are no races to it whatever the fence: it judges what atomics and locks order,
    // which is the memory behind the frames. rustix calls the C library: by its own system calls
    // memory would be mapped without ThreadSanitizer's knowledge, and two arenas, one after the other
    // at the same address, would look like one to it.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg rustix_use_libc";
    let test = |package: &str| {
        run.cargo("test --quiet -Zbuild-std --target")
            .arg(ask::host())
            // Otherwise the standard library would be compiled as other dependencies of tests are.
            .words("--config")
            .arg("profile.test.package.\"*\".opt-level=1")
            .words("-p")
            .arg(package)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", flags)
            .env("PROPTEST_CASES", "8")
            .env("FREEHOLD_SECONDS", "0")
            .target("tsan")
    };
    // A signal is put off under it until its thread makes a call that blocks, and a thread that takes
    // its steps one by one makes none.
    test("freehold").words("--lib --tests -- --skip stopped::").must()?;
    host_tests(run, test("freehold-host"), &UNDER_TSAN).words("-- --skip locked_memory").must()
}

fn fuzz(run: &Run) -> Result<(), String> {
    if !ask::nightly(run) {
        run.skip("fuzzing needs a nightly toolchain; the corpus is replayed by the tests");
        return Ok(());
    }
    let tools = target().join("tools");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(tools.join("bin")).chain(std::env::split_paths(&path)),
    )
    .map_err(|error| format!("PATH: {error}"))?;
    let is_there = run.cargo("fuzz --version").env("PATH", &path).works()
        || run.cargo("install --quiet --locked cargo-fuzz --root").arg(&tools).works();
    if !is_there {
        run.skip("fuzzing needs cargo-fuzz, which cannot be installed; the corpus is replayed by the tests");
        return Ok(());
    }
    for (name, options) in [
        ("operations", "-max_total_time=40 -max_len=1024"),
        ("texts", "-max_total_time=20 -max_len=4096"),
    ] {
        // What is found goes to the first folder, so that a run leaves the working tree alone.
        let found = target().join("fuzz-corpus").join(name);
        std::fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
        run.cargo_in("proofs/fuzz", "+nightly fuzz run --fuzz-dir . --target-dir")
            .arg(target().join("fuzz"))
            .arg(name)
            .arg(found)
            .arg(format!("corpus/{name}"))
            .words("-- -timeout=20 -verbosity=0 -print_final_stats=1")
            .words(options)
            .env("PATH", &path)
            .must()?;
    }
    Ok(())
}

fn mutants(run: &Run) -> Result<(), String> {
    let folder = "proofs/mutants";
    run.cargo_in(folder, "clippy --quiet --all-targets -- -D warnings").must()?;
    // That each place is still found. Which tests notice which line is a command by itself, of half an
    // hour and more: docs/model.md says what was run.
    run.cargo_in(folder, "test --quiet").must()
}
