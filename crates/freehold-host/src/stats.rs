//! What an arena tells about itself: a snapshot of counters, as a value, as JSON, and as Prometheus
//! reads it.

use std::fmt::Write;

use freehold::Order;

/// Orders that a chunk can have.
const ORDERS: usize = Order::MAX.get() as usize + 1;

macro_rules! stats {
    ($($(#[doc = $doc:literal])* $kind:ident $name:ident,)*) => {
        /// A snapshot: each number is exact, but they may be of slightly different moments while
        /// others work.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: u64,)*
            /// Threads use the biased lock: the kernel has `membarrier(2)` and
            /// [`Lock::Ordinary`](crate::Lock) was not asked for.
            pub biased: bool,
            /// Allocations so far by order; each frame of a bulk allocation counts as one of order
            /// 0, and a number of frames that is no power of two as the next larger one.
            pub allocations_by_order: [u64; ORDERS],
        }

        /// Name, kind as Prometheus has it, what it is, and its value.
        fn fields(stats: &Stats) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> {
            [$((stringify!($name), stringify!($kind), concat!($($doc),*), stats.$name)),*].into_iter()
        }
    };
}

stats! {
    /// Frames there are.
    gauge frames,
    /// Frames in use. Exact while nothing runs; takes time in proportion to the slots.
    gauge frames_used,
    /// Frames that are free, wherever they are held.
    gauge frames_free,
    /// Frames there may be, as far as addresses are reserved: see
    /// [`Arena::grow`](crate::Arena::grow).
    gauge frames_reserved,
    /// Blocks there are.
    gauge blocks,
    /// Blocks of which frames were handed out since they last came from the OS: at most these are
    /// backed by memory.
    /// [`Arena::frames_in_memory`](crate::Arena::frames_in_memory) asks the kernel for the exact number of frames.
    gauge blocks_resident,
    /// The most blocks that may be; 0 where there is no limit.
    gauge blocks_resident_limit,
    /// Blocks given back to the OS so far, each time counted.
    counter blocks_released,
    /// Frames given back out of blocks in use so far, each time counted.
    counter frames_released,
    /// Bytes given back to the OS so far.
    counter bytes_released,
    /// System calls that took.
    counter release_calls,
    /// Runs of blocks that the kernel refused to take back (locked memory).
    counter release_refused,
    /// Passes made, by [`trim`](crate::Arena::trim), [`pass`](crate::Arena::pass) or the background
    /// thread.
    counter passes,
    /// Exclusive slots there are.
    gauge slots,
    /// Of these, taken by living threads.
    gauge slots_taken,
    /// Threads that share slots.
    gauge threads_sharing,
    /// Bytes of metadata: the allocator's, and the notes on what is resident and zero.
    gauge metadata_bytes,
    /// Handles whose frames had been freed behind their back by a raw call: a defect of the
    /// program.
    counter refused_drops,
    /// Double frees that only showed after the second call had returned: a defect of the program.
    counter late_double_frees,
}

impl Stats {
    /// One JSON object, each number under its field's name.
    #[must_use]
    pub fn json(&self) -> String {
        let mut text = String::from("{");
        for (name, _, _, value) in fields(self) {
            let _ = write!(text, "\"{name}\":{value},");
        }
        let orders: Vec<_> = self.allocations_by_order.iter().map(u64::to_string).collect();
        let (biased, orders) = (self.biased, orders.join(","));
        let _ = write!(text, "\"biased\":{biased},\"allocations_by_order\":[{orders}]}}");
        text
    }

    /// Prometheus' text format, each number as `freehold_` and its field's name, with the label
    /// `arena`; counters end in `_total`.
    ///
    /// For several arenas, append their texts: a comment that is there twice does no harm to
    /// Prometheus, as long as its lines are the same.
    #[must_use]
    pub fn prometheus(&self, arena: &str) -> String {
        let arena = arena.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let mut text = String::new();
        for (name, kind, help, value) in fields(self) {
            let end = if kind == "counter" { "_total" } else { "" };
            // The first sentence, without what links it.
            let help = help.trim().split(['.', ':']).next().unwrap_or_default();
            let _ =
                writeln!(text, "# HELP freehold_{name}{end} {}", help.replace(['[', ']', '`'], ""));
            let _ = writeln!(text, "# TYPE freehold_{name}{end} {kind}");
            let _ = writeln!(text, "freehold_{name}{end}{{arena=\"{arena}\"}} {value}");
        }
        let _ = writeln!(text, "# HELP freehold_allocations_total Allocations so far by order");
        let _ = writeln!(text, "# TYPE freehold_allocations_total counter");
        for (order, value) in self.allocations_by_order.iter().enumerate() {
            let _ = writeln!(
                text,
                "freehold_allocations_total{{arena=\"{arena}\",order=\"{order}\"}} {value}"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_the_texts() {
        let stats = Stats { frames: 512, bytes_released: 4096, biased: true, ..Stats::default() };
        let json = stats.json();
        assert!(json.starts_with("{\"frames\":512,\"frames_used\":0,"), "{json}");
        assert!(json.contains("\"bytes_released\":4096,") && json.contains("\"biased\":true,"));
        assert!(json.ends_with("0]}") && json.matches('{').count() == 1);
        let text = stats.prometheus("a \"pool\"");
        assert!(
            text.contains("\nfreehold_frames{arena=\"a \\\"pool\\\"\"} 512\n")
                || text.contains("freehold_frames{arena=\"a \\\"pool\\\"\"} 512\n"),
            "{text}"
        );
        assert!(text.contains("# TYPE freehold_bytes_released_total counter\n"));
        assert!(text.contains("order=\"9\"} 0\n"));
        for line in text.lines() {
            let words = line.split(' ').count();
            assert!(
                line.starts_with("# ")
                    || line.rsplit(' ').next().is_some_and(|v| v.parse::<u64>().is_ok()),
                "{line} of {words} words"
            );
        }
        assert_eq!(
            text.lines().filter(|line| line.starts_with("# TYPE")).count(),
            fields(&stats).count() + 1
        );
    }
}
