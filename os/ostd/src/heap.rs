//! OSTD's own heap: slabs out of our frames.

use core::alloc::Layout;

use osdk_heap_allocator::{HeapAllocator, type_from_layout};
use ostd::mm::heap::SlotInfo;

#[ostd::global_heap_allocator]
static HEAP: HeapAllocator = HeapAllocator;

#[ostd::global_heap_allocator_slot_map]
const fn slot(layout: Layout) -> Option<SlotInfo> {
    type_from_layout(layout)
}
