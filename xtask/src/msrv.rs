//! Whether each crate builds with the oldest Rust that it says it needs: `rust-version` of its
//! manifest.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use serde::Deserialize;

use crate::build::root;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    rust_version: Option<String>,
}

/// Checks all of them. A toolchain that is not there and cannot be had is a loud skip: no defect of
/// the crates.
pub(crate) fn run() -> Result<ExitCode, String> {
    let mut failed = Vec::new();
    for (version, crates) in by_version()? {
        if !has(&version) {
            eprintln!("SKIPPED: Rust {version} cannot be had; not checked: {}", crates.join(", "));
            continue;
        }
        println!("Rust {version}: {}", crates.join(", "));
        let packages = crates.iter().flat_map(|name| ["--package", name]);
        let mut command = Command::new("rustup");
        command.args(["run", &version, "cargo", "check", "--quiet", "--locked"]).args(packages);
        // Another compiler's files would have everything compiled again afterwards.
        command.current_dir(root()).env("CARGO_TARGET_DIR", "target/msrv");
        // Cargo sets these for what it runs, and they name this build's toolchain.
        for name in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
            command.env_remove(name);
        }
        let status = command.status().map_err(|error| format!("cannot run rustup: {error}"))?;
        if !status.success() {
            failed.push(version);
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "error: not with Rust {}: raise rust-version, or do without what is newer",
        failed.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

/// The workspace's crates by the version they need.
fn by_version() -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root());
    let output = command.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Package { name, rust_version } in metadata.packages {
        let version =
            rust_version.ok_or_else(|| format!("{name} does not say which Rust it needs"))?;
        versions.entry(version).or_default().push(name);
    }
    Ok(versions)
}

/// Whether that toolchain is here, or was here after asking for it.
fn has(version: &str) -> bool {
    let quiet = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_remove("RUSTUP_TOOLCHAIN");
        command.status().is_ok_and(|status| status.success())
    };
    quiet("rustup", &["run", version, "cargo", "--version"])
        || quiet(
            "timeout",
            &["300", "rustup", "toolchain", "install", version, "--profile", "minimal"],
        )
}
