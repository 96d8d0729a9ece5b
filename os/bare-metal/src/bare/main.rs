//! A kernel for x86-64 whose only physical allocator is freehold, which tests it and measures it.
//!
//! `cargo xtask qemu` builds and runs it; `README.md` beside the manifest tells the story. Where to begin
//! reading: `boot.rs` for the first instructions, then this file from [`kernel_main`] on;
//! `platform.rs` for what freehold asks of its host; `mmu.rs` for what freehold-vm asks;
//! `memory.rs` for how the allocator gets its memory.

#![no_std]
#![no_main]

mod apic;
mod areas;
mod bench;
mod boot;
mod calls;
mod clock;
mod cpu;
mod descriptors;
mod exceptions;
mod exit;
mod folios;
mod interrupts;
mod jobs;
mod layout;
mod libc;
mod machine;
mod memory;
mod mmu;
mod platform;
mod ports;
mod program;
mod serial;
mod smp;
mod spaces;
mod start_info;
mod tables;
mod tests;
mod timer;
mod tlb;

use freehold_kernel::command_line::CommandLine;
use spin::Once;

use crate::start_info::StartInfo;

static START_INFO: Once<StartInfo> = Once::new();

/// The first Rust code, on the first CPU, with interrupts off.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    serial::init();
    cpu::init(0);
    descriptors::init(0);
    interrupts::fill_table();
    interrupts::load_table();
    let info = START_INFO.call_once(|| StartInfo::read(start_info));
    say!("freehold kernel {}; command line: {:?}", env!("CARGO_PKG_VERSION"), info.command_line());
    let line = CommandLine::parse(info.command_line())
        .unwrap_or_else(|word| panic!("{word:?} means nothing here"));
    if line.probe {
        exit::exit(exit::Status::Passed);
    }
    clock::init();
    let cpus = smp::find(info.rsdp);
    memory::init(info, cpus);
    apic::init_machine();
    smp::set_up_this_cpu(0);
    areas::init();
    let stack = areas::stack();
    // SAFETY: a fresh stack, mapped and nobody else's; what is on the old one stays where it is and
    // is not needed.
    unsafe {
        core::arch::asm!("mov rsp, {}", "xor ebp, ebp", "call {}", "ud2", in(reg) stack, sym run, options(noreturn));
    }
}

/// The first CPU goes on here, on a stack with a guard page.
extern "C" fn run() -> ! {
    let info = START_INFO.get().expect("read at boot");
    let line = CommandLine::parse(info.command_line()).unwrap_or_default();
    folios::init();
    smp::start_others();
    say!("cpus: {} online, timer {} Hz", cpu::count(), apic::HERTZ);
    if let Some(expected) = line.cpus {
        assert_eq!(cpu::count(), expected, "cpus={expected} was asked for");
    }
    program::run(&line)
}
