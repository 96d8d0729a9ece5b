//! Hands the linker what a program without an operating system needs: the memory layout, and none
//! of the start files.

fn main() {
    println!("cargo::rerun-if-changed=linker.ld");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_BARE").is_none() {
        return;
    }
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=0x1000",
        "-Wl,-z,noexecstack",
        "-Wl,--gc-sections",
        &format!("-Wl,-T,{root}/linker.ld"),
    ] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
