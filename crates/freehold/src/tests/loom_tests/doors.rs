//! A CPU's door: who is inside, who owns the CPU, and CPUs that come and go.

use super::*;
use crate::memory::hotplug::Hotplug;

/// The owner frees into its hand while somebody ends its leases.
#[test]
fn an_owner_and_a_recall() {
    // Two preemptions are 1,200 executions; three take minutes.
    model_within(2, || {
        let fh = small(true);
        let owner = fh.own(cpu(0)).unwrap();
        let pfn = owner.alloc(request(0)).unwrap();
        together::<()>(roles![
            move || {
                let inside = owner.enter_to_free().unwrap();
                Freeing::of(fh, inside.as_ref())
                    .word(pfn.get() / 64, 1 << (pfn.get() % 64), 1)
                    .unwrap();
                drop(inside);
                // To be dropped, it would wait for the other one.
                core::mem::forget(owner);
            },
            move || assert!(Recall::of_all(fh).for_order(None) < 2)
        ]);
        settled(fh, 0);
    });
}

#[test]
fn the_hotplug_lock_excludes() {
    exclude(|fh, touch| {
        let _hotplug = Hotplug::lock(fh);
        touch();
    });
}

#[test]
fn the_door_of_a_cpu_excludes() {
    exclude(|fh, touch| {
        let inside = inside(fh, 0);
        touch();
        drop(inside);
    });
}

/// The owner comes in by its own way, an intruder by a heavy barrier.
#[test]
fn the_door_of_an_owned_cpu_excludes() {
    model(|| {
        let fh = small(true);
        let owner = fh.own(cpu(0)).unwrap();
        let value = loom::sync::Arc::new(loom::cell::UnsafeCell::new(()));
        let again = value.clone();
        let intruder = spawn(move || {
            let inside = inside(fh, 0);
            again.with_mut(|_| ());
            drop(inside);
        });
        for _ in 0..2 {
            if let Some(inside) = owner.enter_to_free().unwrap() {
                value.with_mut(|_| ());
                drop(inside);
            }
        }
        intruder.join().unwrap();
        set_alone(true);
    });
}

/// A thread that becomes a CPU's owner has one that is online.
#[test]
fn a_cpu_goes_offline_while_somebody_becomes_its_owner() {
    model(|| {
        let fh = small(false);
        let got = together::<bool>(roles![move || fh.on(cpu(1)).offline().is_ok(), move || {
            fh.own(cpu(1)).map(std::mem::forget).is_ok()
        }]);
        assert!(got[0] != got[1], "an offline CPU has an owner, or there is neither");
    });
}

#[test]
fn a_cpu_goes_offline_while_a_block_is_freed_through_it() {
    model(|| {
        let fh = small(false);
        let block = take(fh, 0, 9);
        together::<()>(roles![move || fh.on(cpu(1)).offline().unwrap(), move || {
            let refused = Err(FreeError::CpuOffline { cpu: cpu(1) });
            match fh.on(cpu(1)).free(block, Order::PAGEBLOCK) {
                Ok(()) => {}
                result if result == refused => free(fh, 0, block, 9),
                result => panic!("{result:?}"),
            }
        }]);
        assert_eq!(fh.on(cpu(1)).holdings().unwrap().0, 0, "an offline CPU has something in hand");
        settled(fh, 0);
    });
}

#[test]
fn a_cpu_goes_offline_while_it_allocates() {
    model(|| {
        let fh = small(false);
        let got = together::<Option<Pfn>>(roles![
            move || {
                fh.on(cpu(1)).offline().unwrap();
                None
            },
            move || match fh.on(cpu(1)).alloc(request(0)) {
                Ok(pfn) => Some(pfn),
                result => {
                    assert_eq!(result, Err(AllocError::CpuOffline { cpu: cpu(1) }));
                    None
                }
            }
        ]);
        assert_eq!(fh.on(cpu(1)).holdings().unwrap().0, 0, "an offline CPU has something in hand");
        settled(fh, u64::from(got[1].is_some()));
    });
}
