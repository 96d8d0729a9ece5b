//! What a static library without std needs to be linked into a kernel.

use core::ffi::c_char;
use core::fmt::{self, Write};
use core::panic::PanicInfo;

unsafe extern "C" {
    /// To be brought by a program that links the library without std: told why, with `len` bytes
    /// of text and a zero behind them, when the allocator has found a defect in itself. Must not
    /// return.
    fn freehold_panic(message: *const c_char, len: usize) -> !;
}

struct Text {
    bytes: [u8; 256],
    len: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte stays zero.
        let room = self.bytes.len() - 1 - self.len;
        let fits = text.len().min(room);
        self.bytes[self.len..self.len + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut text = Text { bytes: [0; 256], len: 0 };
    // It only fails where the text is full.
    let _ = write!(text, "{info}");
    // SAFETY: the text ends with a zero; the function does not return, which its declaration in the
    // header demands.
    unsafe { freehold_panic(text.bytes.as_ptr().cast(), text.len) }
}
