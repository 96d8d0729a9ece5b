//! From QEMU's first instruction to Rust: the PVH entry, the switch to 64 bits, and the trampoline
//! of the other CPUs.
//!
//! # The toolchain
//!
//! rustup has no `core` for `x86_64-unknown-none` here, so this is compiled for the host's target,
//! `x86_64-unknown-linux-gnu`, without std, and linked by `linker.ld`. That target's `core` comes
//! compiled. What it was compiled to expect, and who sees to it:
//!
//! | it | so |
//! |---|---|
//! | uses the 128 bytes below the stack pointer (the red zone) | every interrupt and exception switches to a stack of its own (IST), so that nothing below the interrupted stack pointer is written: `descriptors.rs` |
//! | uses SSE registers | SSE is switched on below, and the handlers' entry saves the registers (`fxsave`): `interrupts.rs` |
//! | calls `memcpy` and its kin | `libc.rs` |
//! | has unwind tables and names an unwinder's personality | panics abort; the tables are thrown away, the name is defined: `libc.rs` |
//! | is position-independent | it runs at any address, so also in the upper 2 GiB, which the kernel's own code is compiled for (`code-model=kernel`) |
//!
//! Two ways not taken: a target file with `-Zbuild-std` needs a nightly compiler and the `rust-src`
//! component; Debian's `rustc-web` and `rust-web-src` could build `core` without red zone and SSE,
//! but would tie the kernel to another compiler than everything else here is tested with.
//!
//! # The way up
//!
//! ```text
//!   QEMU   finds the PVH note in the ELF file, loads its segments, starts CPU 0 at `pvh_start`:
//!          32 bits, paging off, EBX -> hvm_start_info (memory map, command line, ACPI's RSDP)
//!   here   4 GiB of 2 MiB pages, seen three times:
//!            0x0000_0000_0000_0000  as they are: until the jump to 64 bits is done
//!            0xffff_8000_0000_0000  the direct map, for good
//!            0xffff_ffff_8000_0000  the first 2 GiB again, where the kernel is linked
//!          then long mode, a stack, `kernel_main(hvm_start_info)`
//! ```
//!
//! The other CPUs start in 16 bits at the trampoline, which `smp.rs` copies below 1 MiB, and go the
//! same way, one at a time, with the same first page tables.

use core::arch::global_asm;

/// Where the trampoline is copied: a page below 1 MiB, which the memory map keeps from the
/// allocator.
pub(crate) const TRAMPOLINE: u64 = 0x8000;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4                         // the name's length
    .long 8                         // the value's
    .long 18                        // XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start

    .section .boot, "awx", @progbits
    .code32
    .global pvh_start
pvh_start:
    cli
    cld
    movl $boot_stack_top, %esp
    movl %ebx, %esi                 // hvm_start_info

    // 4 GiB in pages of 2 MiB.
    movl $boot_pd, %edi
    movl $0x83, %eax                // present, writable, 2 MiB
    movl $2048, %ecx
1:  movl %eax, (%edi)
    movl $0, 4(%edi)
    addl $0x200000, %eax
    addl $8, %edi
    decl %ecx
    jnz 1b

    movl $boot_pml4, %eax
    movl %eax, %cr3
    call enter_long_mode
    lgdtl boot_gdtr
    ljmpl $0x08, $boot64

// Paging on, with long mode enabled; also SSE. CR3 is set. Used before and after the trampoline's
// switch, so only registers are touched.
enter_long_mode:
    movl %cr4, %eax
    orl $0x620, %eax                // PAE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $0xc0000080, %ecx          // EFER
    rdmsr
    orl $0x900, %eax                // LME, NXE
    wrmsr
    movl %cr0, %eax
    andl $0x9ffffff3, %eax          // caches on; no emulation, no task-switched trap
    orl $0x80010022, %eax           // PG, WP, NE, MP
    movl %eax, %cr0
    ret

    .code64
boot64:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movabsq $bsp_stack_top, %rsp
    xorl %ebp, %ebp
    movl %esi, %edi
    movabsq $kernel_main, %rax
    call *%rax
    ud2

    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff        // 0x08: code, 64 bits
    .quad 0x00cf93000000ffff        // 0x10: data
boot_gdtr:
    .word . - boot_gdt - 1
    .long boot_gdt

    .balign 4096
    .global boot_pml4
boot_pml4:
    .quad boot_pdpt_low + 3
    .fill 255, 8, 0
    .quad boot_pdpt_low + 3         // 0xffff_8000_0000_0000
    .fill 254, 8, 0
    .quad boot_pdpt_high + 3        // the last 512 GiB
boot_pdpt_low:
    .quad boot_pd + 3
    .quad boot_pd + 0x1003
    .quad boot_pd + 0x2003
    .quad boot_pd + 0x3003
    .fill 508, 8, 0
boot_pdpt_high:
    .fill 510, 8, 0
    .quad boot_pd + 3               // 0xffff_ffff_8000_0000
    .quad boot_pd + 0x1003
boot_pd:
    .fill 2048, 8, 0
    .fill 64, 8, 0
boot_stack_top:

    // Addresses below 2 GiB, which the kernel's code, being above, cannot name.
    .section .rodata.boot_addresses, "a", @progbits
    .balign 8
    .global boot_pml4_address
    .global kernel_physical_start_address
boot_pml4_address:
    .quad boot_pml4
kernel_physical_start_address:
    .quad kernel_physical_start

    // Copied to TRAMPOLINE, so that every address below is one there.
    .section .trampoline, "a", @progbits
    .global trampoline_start
    .global trampoline_end
    .global trampoline_values
    .code16
trampoline_start:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl (trampoline_gdtr - trampoline_start + {base})
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(trampoline32 - trampoline_start + {base})

    .code32
trampoline32:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $(trampoline_stack - trampoline_start + {base}), %esp
    movl (trampoline_values - trampoline_start + {base}), %eax
    movl %eax, %cr3
    movl $enter_long_mode, %eax
    call *%eax
    ljmpl $0x08, $(trampoline64 - trampoline_start + {base})

    .code64
trampoline64:
    movq (trampoline_values + 8 - trampoline_start + {base}), %rsp
    movq (trampoline_values + 16 - trampoline_start + {base}), %rdi
    movq (trampoline_values + 24 - trampoline_start + {base}), %rax
    xorl %ebp, %ebp
    call *%rax
    ud2

    .balign 8
trampoline_gdt:
    .quad 0
    .quad 0x00af9b000000ffff        // 0x08: code, 64 bits
    .quad 0x00cf93000000ffff        // 0x10: data
    .quad 0x00cf9b000000ffff        // 0x18: code, 32 bits
trampoline_gdtr:
    .word . - trampoline_gdt - 1
    .long trampoline_gdt - trampoline_start + {base}
    .balign 8
trampoline_values:
    .quad 0                         // the page tables
    .quad 0                         // the stack
    .quad 0                         // what is passed on
    .quad 0                         // where to go
    .fill 8, 8, 0
trampoline_stack:
trampoline_end:

    // The first CPU's stack. The pages below it hold nothing that matters, but there is no guard
    // page: the first CPU moves to a stack with one as soon as there are virtual areas.
    .section .bss.bsp_stack, "aw", @nobits
    .balign 4096
    .skip 65536
    .global bsp_stack_top
bsp_stack_top:

    .text
    .code64
"#,
    base = const TRAMPOLINE,
    options(att_syntax)
);
