//! What a static library without std needs to be linked into a kernel.

use core::ffi::c_char;
use core::fmt::Write;
use core::panic::PanicInfo;

use crate::error::Message;

unsafe extern "C" {
    /// To be brought by a program that links the library without std: told why, with `len` bytes
    /// of text and a zero behind them, when the allocator has found a defect in itself. Must not
    /// return.
    fn freehold_panic(message: *const c_char, len: usize) -> !;
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut text = Message::EMPTY;
    // It only fails where the text is full.
    let _ = write!(text, "{info}");
    // SAFETY: the text ends with a zero; the function does not return, which its declaration in the
    // header demands.
    unsafe { freehold_panic(text.bytes.as_ptr(), text.len) }
}
