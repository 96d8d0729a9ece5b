//! Writes that are not allowed end as they do on ordinary memory, whatever the thread has done
//! about its signals.

use crate::common;

use std::sync::atomic::Ordering::Relaxed;

use common::*;
use freehold::SingleCpu;
use freehold_host::freehold_vm::{Access, SpaceId};

const ID: SpaceId = SpaceId::new(0);

/// A machine with a read-only page at 0, in a child that does `body` with it; the child's wait
/// status.
fn in_a_child(body: impl FnOnce(&Machine, &freehold::Freehold<'static, SingleCpu>) -> bool) -> i32 {
    child::fork(|| {
        let vm = machine(512, 1, 1).unwrap();
        let fh = allocator(512, 1, SingleCpu);
        vm.add_vma(ID, pages(0, 512), RW).unwrap();
        vm.map_new(&fh, ID, vpn(0), order(0), Access::Read).unwrap();
        body(&vm, &fh)
    })
}

#[test]
fn a_system_call_that_writes_to_a_read_only_page_fails_with_efault() {
    let test = "a_system_call_that_writes_to_a_read_only_page_fails_with_efault";
    if machine_or_skip(test, 512, 1, 1).is_none() {
        return;
    }
    let status = in_a_child(|vm, fh| {
        assert_eq!(read_into(vm, 0), (-1, libc::EFAULT));
        assert_eq!(read_into(vm, 0), (-1, libc::EFAULT));
        let stats = vm.mmu().stats();
        assert_eq!(stats.refused_writes, u64::from(vm.mmu().sees_system_calls()), "{stats:?}");
        // The page is like any other afterwards: mapped anew, or given its right to be written to.
        vm.unmap(fh, ID, pages(0, 1)).unwrap();
        vm.map_new(fh, ID, vpn(0), order(0), Access::ReadWrite).unwrap();
        let word = &vm.mmu().words(ID, vpn(0)).unwrap()[3];
        word.store(5, Relaxed);
        vm.protect(ID, pages(0, 1), Access::Read).unwrap();
        assert_eq!(read_into(vm, 0), (-1, libc::EFAULT));
        assert_eq!(word.load(Relaxed), 5);
        vm.protect(ID, pages(0, 1), Access::ReadWrite).unwrap();
        vm.write_fault(ID, vpn(0)).unwrap();
        let (read, _) = read_into(vm, 0);
        assert!(read == 8 && word.load(Relaxed) == 77, "{read}, {}", word.load(Relaxed));
        true
    });
    assert_eq!(status, 0);
}

#[test]
fn a_store_to_a_read_only_page_kills_also_where_the_signal_is_blocked_or_ignored() {
    let test = "a_store_to_a_read_only_page_kills_also_where_the_signal_is_blocked_or_ignored";
    if machine_or_skip(test, 512, 1, 1).is_none() {
        return;
    }
    for how in ["as it is", "blocked", "ignored"] {
        let status = in_a_child(|vm, _| {
            // SAFETY: signals of this child only.
            unsafe {
                // The run-time's own handler says something about stacks, and returns; not what
                // this is about.
                libc::signal(
                    libc::SIGSEGV,
                    if how == "ignored" { libc::SIG_IGN } else { libc::SIG_DFL },
                );
                if how == "blocked" {
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::sigaddset(&raw mut set, libc::SIGSEGV);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                }
            }
            vm.mmu().words(ID, vpn(0)).unwrap()[3].store(1, Relaxed);
            true
        });
        assert_eq!(status & 0x7f, libc::SIGSEGV, "{how}: status {status:#x}");
    }
}

/// Where the signal is handled, the handler is told the address.
#[test]
fn the_signal_names_the_page() {
    let test = "the_signal_names_the_page";
    if machine_or_skip(test, 512, 1, 1).is_none() {
        return;
    }
    extern "C" fn caught(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's own structure, and the end of this process.
        unsafe {
            libc::_exit(if (*info).si_addr().addr() == EXPECTED.load(Relaxed) { 0 } else { 4 })
        }
    }
    static EXPECTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let status = in_a_child(|vm, _| {
        let word = &vm.mmu().words(ID, vpn(0)).unwrap()[3];
        EXPECTED.store(word.as_ptr().addr(), Relaxed);
        // SAFETY: a handler for this child.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = caught as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        }
        word.store(1, Relaxed);
        false
    });
    assert_eq!(status, 0);
}
