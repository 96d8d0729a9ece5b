//! How fast this core is at this moment: the rate of adds that do not wait for each other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rounds of a probe, and adds in each: 16,384 adds, a microsecond or two.
const ROUNDS: u64 = 2048;
const CHAINS: u64 = 8;

/// How long the best rate is looked for in the beginning. A neighbour's turn is shorter.
const CALIBRATION: Duration = Duration::from_millis(50);

/// This machine's, with the best rate that any thread has seen.
pub(crate) struct Probe {
    /// Bits of a number of adds a nanosecond. Those of greater numbers are greater.
    best: AtomicU64,
}

impl Probe {
    /// The process's, calibrated when it is first asked for.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Probe> = OnceLock::new();
        SHARED.get_or_init(|| {
            let probe = Self { best: AtomicU64::new(0) };
            let start = Instant::now();
            while start.elapsed() < CALIBRATION && probe.rate().is_some() {}
            probe
        })
    }

    /// Adds a nanosecond at this moment; `None` where there is no probe for this processor.
    pub(crate) fn rate(&self) -> Option<f64> {
        let start = Instant::now();
        adds(ROUNDS)?;
        // The clock's own time is in it, each time alike.
        let rate = (ROUNDS * CHAINS) as f64 / start.elapsed().as_nanos().max(1) as f64;
        // Relaxed: a figure that carries nothing.
        self.best.fetch_max(rate.to_bits(), Ordering::Relaxed);
        Some(rate)
    }

    /// The best rate so far.
    pub(crate) fn best(&self) -> f64 {
        // Relaxed: as above.
        f64::from_bits(self.best.load(Ordering::Relaxed))
    }
}

/// Eight chains of adds, side by side in registers; `None` on a processor that nobody has tried
/// them on.
#[inline(never)]
#[allow(unsafe_code)] // Nothing but an opaque use of a register keeps a compiler from adding up at once.
fn adds(rounds: u64) -> Option<()> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    {
        let mut chains = [0u64; CHAINS as usize];
        for _ in 0..rounds {
            for chain in &mut chains {
                *chain = chain.wrapping_add(1);
                // SAFETY: no instruction at all. The register is said to change, so that the next
                // round's add cannot be made with this one's.
                unsafe {
                    std::arch::asm!(
                        "/* {0} */",
                        inout(reg) * chain,
                        options(nomem, nostack, preserves_flags)
                    );
                }
            }
        }
        std::hint::black_box(chains);
        Some(())
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    {
        let _ = rounds;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_is_above_the_best() {
        let probe = Probe::shared();
        for _ in 0..100 {
            if let Some(rate) = probe.rate() {
                assert!(rate.is_finite() && rate > 0.0 && rate <= probe.best());
            }
        }
    }
}
