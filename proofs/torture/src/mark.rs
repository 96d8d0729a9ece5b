//! The min mark: threads take frames until nobody gets any more. Together they leave what the mark
//! asks for, to the frame, and single frames leave no more.

use std::thread;

use clap::Args;
use freehold::{
    Config, CpuId, FrameRange, Migratetype, Order, Pfn, Request, Watermarks, ZoneConfig,
};
use serde_json::{Value, json};

use crate::exact::platform::{Core, core};
use crate::exact::random::Random;

#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    #[arg(long, default_value_t = 8)]
    threads: u16,
    /// Pageblocks of the machine.
    #[arg(long, default_value_t = 40)]
    blocks: u64,
    /// Frames below which no request may come.
    #[arg(long, default_value_t = 1000)]
    min: u64,
}

/// Requests that fail before a thread gives up.
const REFUSED: u32 = 20;

/// One thread: single frames, and a few runs.
fn take_all(fh: &'static Core, cpu: u16, seed: u64) {
    let owned = fh.own(CpuId::new(cpu)).expect("nobody else owns it");
    let mut random = Random::new(seed);
    let mut refused = 0;
    while refused < REFUSED {
        let order = if random.percent(10) { random.below(4) as u8 } else { 0 };
        let order = Order::new(order).expect("a small order");
        let request = Request::new(order, random.pick(&Migratetype::PCP));
        refused = if owned.alloc(request).is_ok() { 0 } else { refused + 1 };
    }
}

/// Plays all rounds.
pub(crate) fn run(given: &Arguments) -> Value {
    let (mut lowest, mut highest, mut troubles) = (u64::MAX, 0, Vec::new());
    for round in 0..given.rounds {
        let memory = [FrameRange::new(Pfn::new(0), 512 * given.blocks).expect("in range")];
        let (min, low, high) = (given.min, given.min + 100, given.min + 200);
        let watermarks = Watermarks::Frames { min, low, high };
        let zones = [ZoneConfig { watermarks, ..ZoneConfig::new(&memory) }];
        let fh = match core(&Config::new(given.threads, &zones), true) {
            Ok(fh) => fh,
            Err(error) => return json!({ "troubles": [error.to_string()] }),
        };
        thread::scope(|scope| {
            for cpu in 0..given.threads {
                scope.spawn(move || take_all(fh, cpu, round << 16 | u64::from(cpu)));
            }
        });
        fh.drain_all();
        let free = fh.zone_stats(0).map_or(0, |stats| stats.free);
        (lowest, highest) = (lowest.min(free), highest.max(free));
        troubles.extend(fh.validate().err().map(|broken| broken.to_string()));
    }
    if (lowest, highest) != (given.min, given.min) {
        troubles.push(format!("{lowest} to {highest} frames were left, not {}", given.min));
    }
    json!({
        "troubles": troubles, "rounds": given.rounds, "min": given.min,
        "lowest_left_free": lowest, "highest_left_free": highest,
    })
}
