//! Which version a program was compiled against, and which one it runs with.

use core::ffi::c_char;

/// The major version of this header.
pub const FREEHOLD_VERSION_MAJOR: u32 = 0;
/// The minor version of this header. Before 1.0.0, another minor version is another ABI.
pub const FREEHOLD_VERSION_MINOR: u32 = 1;
/// The patch version of this header.
pub const FREEHOLD_VERSION_PATCH: u32 = 0;

/// The version of the library that is linked: `(major << 16) | (minor << 8) | patch`.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_version_number() -> u32 {
    FREEHOLD_VERSION_MAJOR << 16 | FREEHOLD_VERSION_MINOR << 8 | FREEHOLD_VERSION_PATCH
}

/// The version of the library that is linked, as text: `"0.1.0"`. Never null; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cbindgen cannot read `env!`, so the numbers are written down twice.
    #[test]
    fn the_numbers_are_those_of_the_package() {
        let text =
            format!("{FREEHOLD_VERSION_MAJOR}.{FREEHOLD_VERSION_MINOR}.{FREEHOLD_VERSION_PATCH}");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
        assert_eq!(freehold_version_number(), 0x00_01_00);
    }
}
