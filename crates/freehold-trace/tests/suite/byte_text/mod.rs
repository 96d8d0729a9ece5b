//! Byte strings as the texts that readers are given: the fuzzer's and the ordinary tests' harness.
//!
//! The first byte says which reader the rest is for. Nothing may panic, and what is accepted must
//! hold together: amounts that are no more than their whole, times that do not run backwards.

use freehold_trace::buddyinfo::{parse_buddyinfo, parse_pagetypeinfo};
use freehold_trace::kernel::Kernel;
use freehold_trace::machine::{Look, Machine, Parts};
use freehold_trace::{OpenOptions, Source, TraceReader, ticks, zoneinfo};

/// Parts of a machine are separated by this.
const PART: &str = "\u{1}";

/// Gives the bytes to a reader, and checks what it makes of them; whether it accepted them.
pub(crate) fn check(bytes: &[u8]) -> bool {
    let Some((&which, rest)) = bytes.split_first() else { return false };
    let text = String::from_utf8_lossy(rest);
    match which % 6 {
        0 => zoneinfo::parse(&text).is_ok_and(|zones| {
            zones.iter().for_each(|zone| assert!(zone.free <= zone.managed, "{zone:?}"));
            true
        }),
        1 => parse_buddyinfo(&text).is_ok_and(|zones| {
            assert!(zones.iter().all(|zone| zone.chunks.len() == zones[0].chunks.len()));
            true
        }),
        2 => parse_pagetypeinfo(&text).is_ok_and(|info| {
            assert!(info.max_order() < 19 && info.numbers().is_some());
            true
        }),
        3 => machine(&text),
        4 => {
            Kernel::parse(&text).is_some_and(|kernel| {
                assert_eq!(Kernel::parse(&kernel.to_string()).map(|k| k.major), Some(kernel.major));
                true
            }) | ticks::parse(&text).is_ok()
        }
        _ => trace(rest),
    }
}

fn machine(text: &str) -> bool {
    let mut parts = text.split(PART);
    let Some(Ok(zones)) = parts.next().map(zoneinfo::parse) else { return false };
    let buddies = parts.next().map(parse_buddyinfo);
    let types = parts.next().map(parse_pagetypeinfo);
    if matches!(buddies, Some(Err(_))) || matches!(types, Some(Err(_))) {
        return false;
    }
    let (buddies, types) = (buddies.and_then(Result::ok), types.and_then(Result::ok));
    let parts = Parts { zones: Some(zones), buddies, types, ..Parts::default() };
    let Ok(machine) = Machine::new(parts, None) else {
        return false;
    };
    let look = Look::new(&machine);
    for zone in &look.zones {
        assert!(zone.cma <= zone.managed || zone.managed.is_none(), "{zone:?}");
        let rising =
            zone.orders.windows(2).all(|pair| pair[0].unusable_index <= pair[1].unusable_index);
        assert!(rising && zone.orders.iter().all(|of| (0.0..=1.0).contains(&of.unusable_index)));
    }
    true
}

fn trace(bytes: &[u8]) -> bool {
    // A source of bytes is part of a program: each of these is given back below.
    let bytes: Box<[u8]> = bytes.into();
    let leaked: *mut [u8] = Box::into_raw(bytes);
    // SAFETY: made by `Box::into_raw` just now; nothing else has it, and every reader of it is gone
    // before it is given back.
    let lent: &'static [u8] = unsafe { &*leaked };
    let mut accepted = false;
    for kernel in [None, Some(Kernel::OWN), Some(Kernel::new(3, 10)), Some(Kernel::new(4, 18))] {
        for skip_bad in [false, true] {
            let options = OpenOptions { skip_bad, kernel, types: None };
            let source = Source::Bytes { name: "fuzz".to_owned(), bytes: lent };
            let Ok(mut reader) = TraceReader::open(&source, options) else { continue };
            let (mut batch, mut latest, mut any) = (Vec::new(), 0u64, false);
            let ended = loop {
                match reader.next_batch(&mut batch) {
                    Ok(true) => any = true,
                    Ok(false) => break true,
                    Err(_) => break false,
                }
                for event in &batch {
                    assert!(event.ts_ns.saturating_add(1_000_000) >= latest, "time goes back");
                    latest = latest.max(event.ts_ns);
                }
            };
            assert!(any || !ended, "a trace without events is an error");
            accepted |= ended;
        }
    }
    // SAFETY: see above; readers, sources and batches that had it are gone.
    drop(unsafe { Box::from_raw(leaked) });
    accepted
}
