//! Ticks of an axis, and the units that its values are told in.

/// Round values from 0 to a little above the largest value of an axis.
pub(super) struct Ticks {
    step: f64,
    pub(super) above: f64,
}

impl Ticks {
    /// `most` steps at most, of 1, 2 or 5 times a power of ten.
    pub(super) fn upto(largest: f64, most: u32) -> Self {
        let rough = largest / f64::from(most);
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|round| round * power)
            .into_iter()
            .find(|step| *step >= rough * 0.999_999);
        let step = step.unwrap_or(10.0 * power);
        Self { step, above: (largest / step * 0.999_999).ceil() * step }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = f64> + use<> {
        let step = self.step;
        let steps = (self.above / step).round() as u32;
        (0..=steps).map(move |n| f64::from(n) * step)
    }

    /// With as many decimals as tell the ticks apart.
    pub(super) fn text(&self, tick: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        format!("{tick:.decimals$}")
    }
}

/// The unit for so many frames: how many of them it is (4 KiB each) and its name.
pub(super) fn memory_unit(frames: u64) -> (f64, &'static str) {
    match frames * 4 {
        0..1_024 => (0.25, "KiB"),
        1_024..1_048_576 => (256.0, "MiB"),
        1_048_576..1_073_741_824 => (262_144.0, "GiB"),
        _ => (268_435_456.0, "TiB"),
    }
}

/// The unit for so many nanoseconds: how many it is, and its name.
pub(super) fn time_unit(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "us"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps_and_reach_over_the_largest_value() {
        for (largest, most, step, above) in [
            (0.54, 5, 0.2, 0.6),
            (1.0, 5, 0.2, 1.0),
            (256.7, 5, 100.0, 300.0),
            (7.0, 8, 1.0, 7.0),
            (0.031, 5, 0.01, 0.04),
        ] {
            let ticks = Ticks::upto(largest, most);
            assert!((ticks.step - step).abs() < 1e-9, "step {} for {largest}", ticks.step);
            assert!((ticks.above - above).abs() < 1e-9, "top {} for {largest}", ticks.above);
        }
    }

    #[test]
    fn ticks_are_told_apart() {
        for largest in [0.000_3, 0.02, 0.7, 1.0, 9.0, 25.0, 4_000.0] {
            let ticks = Ticks::upto(largest, 5);
            let texts: Vec<String> = ticks.values().map(|tick| ticks.text(tick)).collect();
            assert!((2..=6).contains(&texts.len()), "{texts:?}");
            assert!(texts.windows(2).all(|pair| pair[0] != pair[1]), "{texts:?}");
        }
    }
}
