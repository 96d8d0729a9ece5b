//! The other CPUs: found in the ACPI tables, started one after the other.
//!
//! ```text
//!   first CPU                                          another
//!     copies the trampoline to 0x8000                    waits to be started
//!     a stack, page tables, where to go: behind it
//!     INIT, "start at 0x8000" (twice)            ->      16 bits, 32 bits, 64 bits: boot.rs
//!     waits                                              segments, interrupts, page tables, APIC, timer
//!                                                        online for freehold, takes its own handle
//!                                                <-      `online`; waits for jobs
//! ```

use core::sync::atomic::{AtomicU32, Ordering};

use freehold::{CpuId, FRAME_SIZE};
use freehold_kernel::acpi;

use crate::boot::TRAMPOLINE;
use crate::cpu::MAX_CPUS;
use crate::layout::direct;
use crate::start_info::Physical;
use crate::{apic, areas, clock, cpu, descriptors, interrupts, jobs, memory, say, tlb};

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    static trampoline_values: u8;
}

static FOUND: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(u32::MAX) }; MAX_CPUS];

/// Looks which CPUs there are; this one comes first. Returns how many.
pub(crate) fn find(rsdp: u64) -> usize {
    // SAFETY: function 1 of `cpuid` exists on every x86-64.
    let me = core::arch::x86_64::__cpuid(1).ebx >> 24;
    FOUND[0].store(me, Ordering::Relaxed);
    let (mut n, mut more) = (1, 0);
    let found = acpi::for_each_cpu(&Physical, rsdp, |cpu| {
        if cpu.apic_id == me || cpu.apic_id > 254 {
            return;
        }
        match FOUND.get(n) {
            // Relaxed: there is one CPU as yet.
            Some(place) => {
                place.store(cpu.apic_id, Ordering::Relaxed);
                n += 1;
            }
            None => more += 1,
        }
    });
    if let Err(error) = found {
        say!("one CPU: {error}");
    }
    if more > 0 {
        say!("{more} CPUs are left alone: there is room for {MAX_CPUS}");
    }
    cpu::set_count(n);
    n
}

/// Brings this CPU to where it can be called and given jobs.
pub(crate) fn set_up_this_cpu(index: usize) {
    let this = cpu::at(index);
    // Relaxed: published by `online`.
    this.apic_id.store(apic::init_cpu(), Ordering::Relaxed);
    // Release: who sees this CPU online may call it.
    this.online.store(true, Ordering::Release);
    apic::set_timer(apic::HERTZ);
    cpu::interrupts_on();
    own();
}

/// Takes this CPU's part of the allocator.
pub(crate) fn own() {
    let id = CpuId::new(cpu::index() as u16);
    let freehold = memory::freehold();
    freehold.cpu_online(id).unwrap_or_else(|error| panic!("{error}"));
    let frames = freehold.own(id).unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: this CPU has had no handle since it last gave it back.
    unsafe { cpu::set_frames(Some(frames)) };
}

/// Gives this CPU's part of the allocator back.
pub(crate) fn disown() {
    // SAFETY: called as a job of its own: nothing else is under way on this CPU.
    unsafe { cpu::set_frames(None) };
}

/// Starts all CPUs that were found.
pub(crate) fn start_others() {
    let len = &raw const trampoline_end as usize - &raw const trampoline_start as usize;
    assert!(len as u64 <= FRAME_SIZE);
    let to = direct(TRAMPOLINE) as *mut u8;
    // SAFETY: that page was kept from the allocator for this; the two do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(&raw const trampoline_start, to, len) };
    let values = &raw const trampoline_values as usize - &raw const trampoline_start as usize;
    for (index, apic_id) in FOUND.iter().enumerate().take(cpu::count()).skip(1) {
        let start = [
            memory::start_root().get() * FRAME_SIZE,
            areas::stack(),
            index as u64,
            other_main as extern "C" fn(u64) -> ! as usize as u64,
        ];
        // SAFETY: within the trampoline's page, where the last CPU to start has read them.
        unsafe { to.add(values).cast::<[u64; 4]>().write_unaligned(start) };
        // Relaxed: found by this CPU.
        apic::start_cpu(apic_id.load(Ordering::Relaxed), TRAMPOLINE);
        let patience = clock::from_microseconds(5_000_000);
        let since = cpu::time_stamp();
        // Acquire: the CPU has set itself up.
        while !cpu::at(index).online.load(Ordering::Acquire) {
            assert!(cpu::time_stamp() - since < patience, "CPU {index} does not start");
            crate::calls::poll();
            core::hint::spin_loop();
        }
    }
}

extern "C" fn other_main(index: u64) -> ! {
    let index = index as usize;
    cpu::init(index);
    descriptors::init(index);
    interrupts::load_table();
    // SAFETY: the kernel's own tables: all but the first memory is as before.
    unsafe { tlb::load(memory::root().get() * FRAME_SIZE) };
    set_up_this_cpu(index);
    jobs::serve()
}
