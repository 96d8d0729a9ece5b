//! Names the shared library the way the run-time linker looks for it.
//!
//! Before 1.0 each minor version may change the ABI, so both numbers are part of the soname:
//! `libfreehold.so.0.1`.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let number = |name: &str| env::var(name).unwrap_or_default();
    let (major, minor) = (number("CARGO_PKG_VERSION_MAJOR"), number("CARGO_PKG_VERSION_MINOR"));
    let soname = if major == "0" { format!("{major}.{minor}") } else { major };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfreehold.so.{soname}");
}
