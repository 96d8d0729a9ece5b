//! The serial port: where everything is printed.
//!
//! Whole lines are written under a lock, so that CPUs do not mix theirs. A handler that ends the
//! machine may have interrupted the lock's holder, so it waits for a while only and then prints
//! anyway.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::ports;

const PORT: u16 = 0x3f8;
/// Turns of the wait for the lock, and for the port to take a byte.
const PATIENCE: u32 = 10_000_000;

static LOCKED: AtomicBool = AtomicBool::new(false);

/// Sets the port up: 115200 baud, 8 bits, no interrupts.
pub(crate) fn init() {
    for (register, value) in
        [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0xc7), (4, 0x03)]
    {
        // SAFETY: the first serial port's registers; it touches no memory.
        unsafe { ports::write8(PORT + register, value) };
    }
}

struct Port;

impl Port {
    fn put(&self, byte: u8) {
        for _ in 0..PATIENCE {
            // SAFETY: the line status register.
            if unsafe { ports::read8(PORT + 5) } & 0x20 != 0 {
                break;
            }
        }
        // SAFETY: the data register.
        unsafe { ports::write8(PORT, byte) };
    }
}

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.put(b'\r');
            }
            self.put(byte);
        }
        Ok(())
    }
}

/// Prints a line.
pub(crate) fn line(arguments: fmt::Arguments<'_>) {
    let mut waited = 0;
    // Acquire: what the last line's writer sent comes first. Relaxed on failure: nothing was
    // learnt.
    while LOCKED.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        waited += 1;
        if waited > PATIENCE {
            break;
        }
        // Whoever has it may be waiting for this CPU to answer.
        crate::calls::poll();
        core::hint::spin_loop();
    }
    // The port never fails.
    let _ = Port.write_fmt(arguments);
    let _ = Port.write_str("\n");
    // Release: pairs with the exchange above.
    LOCKED.store(false, Ordering::Release);
}

/// Prints a line on the serial port.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::serial::line(format_args!($($argument)*)) };
}
