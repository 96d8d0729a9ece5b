//! What the kernel is for: the self-test, the benchmarks, and the look whether all memory is home
//! at the end.

use core::sync::atomic::Ordering;

use freehold::{Frames, Migratetype, Order, Request};
use freehold_kernel::command_line::{CommandLine, Inject};
use freehold_kernel::suite::{self, Failure, Machine, Summary, Test};

use crate::machine::Bare;
use crate::{bench, calls, cpu, exit, mmu, platform, say, tests, tlb};

/// Does what the command line says and ends the machine.
pub(crate) fn run(line: &CommandLine<'_>) -> ! {
    let mut summary = Summary::default();
    let mut extra: Option<Test<Bare>> = None;
    match line.inject {
        None => {}
        Some(Inject::Panic) => panic!("on purpose"),
        Some(Inject::Fault) => fault(),
        Some(Inject::Hang) => loop {
            cpu::wait_until(|| false);
        },
        Some(Inject::Failure) => {
            extra = Some(Test { name: "a test that fails on purpose", run: leak })
        }
        // Relaxed: read by this CPU, and by others in jobs that come later.
        Some(Inject::NoShootdown) => mmu::NO_SHOOTDOWN.store(true, Ordering::Relaxed),
    }
    say!("self-test: the page allocator");
    suite::run(&Bare, &suite::tests(), line.only, &mut summary);
    say!("self-test: the machine");
    suite::run(&Bare, &tests::tests(), line.only, &mut summary);
    if let Some(extra) = extra {
        suite::run(&Bare, &[extra], "", &mut summary);
    }
    let sent = calls::snapshot();
    say!(
        "counts: {} heavy barriers ({} interrupts), {} shootdowns of {} CPUs ({} interrupts: the others had one coming)",
        sent.barriers,
        sent.barrier_interrupts,
        sent.shootdowns,
        sent.shootdown_calls,
        sent.shootdown_interrupts
    );
    // Relaxed, here and below: statistics.
    say!(
        "        {} translations forgotten one by one, {} times all",
        tlb::SINGLE.load(Ordering::Relaxed),
        tlb::ALL.load(Ordering::Relaxed)
    );
    let pressure = platform::PRESSURE.each_ref().map(|level| level.load(Ordering::Relaxed));
    say!("        pressure told: none {}, low {}, min {}", pressure[0], pressure[1], pressure[2]);
    if line.bench {
        if let Err(failure) = suite::bench::run(&Bare).and_then(|()| bench::run(&Bare)) {
            say!("FAIL  benchmarks: {failure}");
            summary.failed += 1;
        }
    }
    if summary == Summary::default() {
        say!("FAIL  no self-test has {:?} in its name", line.only);
        summary.failed += 1;
    }
    say!("self-test: {summary}");
    exit::exit(if summary.failed == 0 { exit::Status::Passed } else { exit::Status::Failed })
}

/// A frame that is not given back.
fn leak(machine: &Bare) -> Result<(), Failure> {
    let _ = machine.freehold().alloc(Request::new(Order::ZERO, Migratetype::Movable));
    Ok(())
}

/// An access that is nobody's.
fn fault() -> ! {
    // SAFETY: none: this is meant to fault, and the machine ends in the handler.
    unsafe { core::arch::asm!("mov rax, [0x10]", out("rax") _, options(nostack)) };
    unreachable!("a null pointer was read")
}
