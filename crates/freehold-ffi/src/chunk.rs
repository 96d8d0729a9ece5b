//! One chunk: the hot calls. An owner's from what its CPU has in hand first, compiled once for each
//! order; then the long way; then the way for everybody else, and that finds out what is wrong.
//! Each function is unsafe for its pointers, which are as the [crate](crate#pointers) says.

use freehold::{Migratetype, Order, Pfn};

use crate::arguments::shared;
use crate::error::{Error, answer, fail_alloc, fail_free, tell};
use crate::handle::{Cpu, call, owned};
use crate::request::Request;
use crate::status::Status;

/// Allocates what the request says; writes the first frame to `pfn`. Constant time from what the
/// CPU has in hand; otherwise a bounded amount of work to get more. Before it fails every CPU is
/// asked, unless the request may not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc(
    cpu: *const Cpu,
    request: *const Request,
    pfn: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        let Some(asked) = request.as_ref() else { return alloc_any(cpu, request, pfn, error) };
        // Single frames here, which saves the jump and a look at the order.
        match take_in_hand(cpu, asked.single(), Order::ZERO, pfn) {
            InHand::Taken => return Status::Ok,
            InHand::NotOwner => return alloc_any(cpu, request, pfn, error),
            InHand::Nothing => {}
        }
        match ALLOC.get(usize::from(asked.order)) {
            Some(alloc) => alloc(cpu, request, pfn, error),
            None => alloc_any(cpu, request, pfn, error),
        }
    }
}

type Alloc = unsafe fn(*const Cpu, *const Request, *mut u64, *mut Error) -> Status;
type Free = unsafe fn(*const Cpu, u64, *mut Error) -> Status;

macro_rules! by_order {
    ($f:ident: $($order:literal)*) => { [$($f::<$order>),*] };
}

/// By order. Compiled once for each: what is known of the order then need not be asked, some 60
/// instructions of a pair.
static ALLOC: [Alloc; 10] = by_order!(alloc_chunk: 0 1 2 3 4 5 6 7 8 9);
static FREE: [Free; 10] = by_order!(free_chunk: 0 1 2 3 4 5 6 7 8 9);

const fn order_of(order: u8) -> Order {
    match Order::new(order) {
        Some(order) => order,
        None => Order::ZERO,
    }
}

/// `request` is not null and of that order, here and in `alloc_long`.
#[inline(never)]
unsafe fn alloc_chunk<const ORDER: u8>(
    cpu: *const Cpu,
    request: *const Request,
    pfn: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        if const { ORDER > 0 && ORDER < 6 } {
            match take_in_hand(cpu, (*request).chunk(), const { order_of(ORDER) }, pfn) {
                InHand::Taken => return Status::Ok,
                InHand::NotOwner => return alloc_any(cpu, request, pfn, error),
                InHand::Nothing => {}
            }
        }
        alloc_long::<ORDER>(cpu, request, pfn, error)
    }
}

/// What came of looking into a CPU's hand.
enum InHand {
    Taken,
    /// The long way knows what to do; it is a jump away, so that nothing has to be saved for it.
    Nothing,
    /// The handle is not an owner's.
    NotOwner,
}

/// A chunk of order 0 to 5 from what the CPU has in hand.
#[inline(always)]
unsafe fn take_in_hand(
    cpu: *const Cpu,
    kind: Option<Migratetype>,
    order: Order,
    pfn: *mut u64,
) -> InHand {
    let Some(kind) = kind.filter(|_| !pfn.is_null()) else { return InHand::Nothing };
    // SAFETY: the caller's promise.
    let Some(owned) = (unsafe { owned(cpu) }) else { return InHand::NotOwner };
    let Some(found) = owned.alloc_in_hand(order, kind) else { return InHand::Nothing };
    // SAFETY: not null, and the rest is the caller's promise.
    unsafe { pfn.write(found.get()) };
    InHand::Taken
}

#[inline(never)]
unsafe fn alloc_long<const ORDER: u8>(
    cpu: *const Cpu,
    request: *const Request,
    pfn: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        let Some(kind) = (*request).chunk() else { return alloc_any(cpu, request, pfn, error) };
        if pfn.is_null() {
            return alloc_any(cpu, request, pfn, error);
        }
        let Some(owned) = owned(cpu) else { return alloc_any(cpu, request, pfn, error) };
        match owned.alloc(freehold::Request::new(const { order_of(ORDER) }, kind)) {
            Ok(found) => {
                pfn.write(found.get());
                Status::Ok
            }
            Err(why) => fail_alloc(error, why),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn alloc_any(
    cpu: *const Cpu,
    request: *const Request,
    pfn: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        tell(pfn, "pfn", error, || {
            let request = shared(request, "request")?.engine()?;
            Ok(call!(cpu, handle => handle.alloc(request))?.get())
        })
    }
}

/// Frees `2^order` frames: any aligned part of what was allocated, on whatever CPU. Never waits for
/// a lock. Frames that are free already are refused; of two frees at the same moment, one of them
/// by the CPU that leases the frame's word, neither may see the other: the frame is free once, and
/// the platform's `late_double_free` is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free(
    cpu: *const Cpu,
    pfn: u64,
    order: u8,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        if order == 0 {
            return free_chunk::<0>(cpu, pfn, error);
        }
        match FREE.get(usize::from(order)) {
            Some(free) => free(cpu, pfn, error),
            None => free_any(cpu, pfn, order, error),
        }
    }
}

#[inline(always)]
unsafe fn free_chunk<const ORDER: u8>(cpu: *const Cpu, pfn: u64, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        let Some(owned) = owned(cpu) else { return free_any(cpu, pfn, ORDER, error) };
        if owned.free_in_hand(Pfn::new(pfn), const { order_of(ORDER) }) {
            return Status::Ok;
        }
        free_long::<ORDER>(cpu, pfn, error)
    }
}

#[inline(never)]
unsafe fn free_long<const ORDER: u8>(cpu: *const Cpu, pfn: u64, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        let Some(owned) = owned(cpu) else { return free_any(cpu, pfn, ORDER, error) };
        match owned.free(Pfn::new(pfn), const { order_of(ORDER) }) {
            Ok(()) => Status::Ok,
            Err(why) => fail_free(error, why),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn free_any(cpu: *const Cpu, pfn: u64, order: u8, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let order = crate::arguments::order(order)?;
            Ok(call!(cpu, handle => handle.free(Pfn::new(pfn), order))?)
        })
    }
}
