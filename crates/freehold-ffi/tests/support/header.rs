//! The header, as cbindgen makes it of the sources.

use std::path::{Path, PathBuf};

/// Where the header is checked in.
pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/freehold.h")
}

/// What it has to be.
pub(crate) fn generate() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/lib.rs"))
        .generate()
        .expect("cbindgen reads the sources");
    let mut header = Vec::new();
    bindings.write(&mut header);
    String::from_utf8(header).expect("the sources are UTF-8")
}
