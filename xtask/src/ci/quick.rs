//! Steps of the lane *quick*: under eight minutes on two cores, before every push.

use super::ask;
use super::step::{Lane, Run, Step};
use crate::build::root;

/// Workspaces of their own, of which the top's commands know nothing.
const ROOMS: [&str; 6] = [
    "crates/freehold-ffi/header",
    "os",
    "proofs/fuzz",
    "proofs/model",
    "proofs/mutants",
    "proofs/torture",
];

const QUICK: Step = Step {
    name: "",
    lane: Lane::Quick,
    title: "",
    minutes: 15,
    beside: false,
    covered_by: None,
    run: format,
};

pub(super) const STEPS: &[Step] = &[
    Step {
        name: "format",
        title: "format; lock files that fit their manifests",
        run: format,
        ..QUICK
    },
    Step { name: "lints", title: "clippy, warnings are errors", beside: true, run: lints, ..QUICK },
    Step {
        name: "core",
        title: "tests of the allocator and of virtual memory",
        covered_by: Some("tests"),
        run: core,
        ..QUICK
    },
    Step { name: "header", title: "the C header is what the sources say", run: header, ..QUICK },
    Step {
        name: "no-std",
        title: "the no_std crates in a program without std",
        run: no_std,
        ..QUICK
    },
    Step {
        name: "smallest",
        title: "the smallest kernel that has the allocator, as docs/kernels.md has it, from an empty folder",
        run: smallest,
        ..QUICK
    },
];

fn format(run: &Run) -> Result<(), String> {
    run.cargo("fmt --check").must()?;
    for room in ROOMS {
        run.cargo_in(room, "fmt --check").must()?;
        let (status, told) =
            run.cargo_in(room, "metadata --quiet --locked --format-version 1").heard()?;
        if status != 0 {
            return Err(format!(
                "{room}/Cargo.lock: 'cargo metadata' there brings it up to date\n{told}"
            ));
        }
    }
    Ok(())
}

fn lints(run: &Run) -> Result<(), String> {
    run.cargo("clippy --quiet --workspace --all-targets -- -D warnings").must()
}

fn core(run: &Run) -> Result<(), String> {
    run.cargo("test --quiet -p freehold -p freehold-vm --no-fail-fast").must()
}

fn header(run: &Run) -> Result<(), String> {
    run.cargo_in("crates/freehold-ffi/header", "run --quiet -- --check").must()
}

fn no_std(run: &Run) -> Result<(), String> {
    run.cargo("build --quiet --manifest-path .ci/no-std-probe/Cargo.toml")
        .target("no-std")
        .must()?;
    run.line("freehold, freehold-vm and freehold-adapters link into a program without std");
    Ok(())
}

/// The page's fence says `Rust` with a capital, which viewers colour and rustdoc does not compile: a
/// program without `main` is no example in a library's documentation.
fn smallest(run: &Run) -> Result<(), String> {
    if ask::target(run, "x86_64-unknown-none") {
        run.program(root().join(".ci/follow-page"), "docs/kernels.md Smallest")
            .env("CARGO_TARGET_DIR", crate::build::target().join("smallest"))
            .must()?;
    }
    Ok(())
}
