//! The real `x86_64` crate builds and takes down page tables with frames of the allocator.

use std::alloc::Layout;

use freehold::{
    Config, CpuId, FRAME_SIZE, FrameRange, FreeError, Freehold, Migratetype, Order, Pfn, Platform,
    SingleCpu, Threads, Watermarks, ZoneConfig,
};
use freehold_adapters::x86_64::Frames;
use x86_64::VirtAddr;
use x86_64::structures::paging::mapper::CleanUp;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags,
    PhysFrame, Size1GiB, Size2MiB, Size4KiB, Translate,
};

fn engine<P: Platform>(cpus: u16, start: u64, frames: u64, platform: P) -> Freehold<'static, P> {
    let memory = [FrameRange::new(Pfn::new(start), frames).unwrap()];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    Freehold::leaked(&Config::new(cpus, &zones), platform).unwrap()
}

fn handle<S: freehold::Frames>(source: S) -> Frames<S> {
    // SAFETY: what these tests allocate so, they free so.
    unsafe { Frames::new(source) }
}

fn free<P: Platform>(engine: &Freehold<'_, P>) -> u64 {
    engine.zone_stats(0).unwrap().free
}

#[test]
fn three_sizes_each_aligned_to_itself_out_of_one_allocator() {
    // 3 GiB that begin in the middle of one: exactly two aligned GiB are in there.
    let engine = engine(1, (1 << 18) + (1 << 17), 3 << 18, SingleCpu);
    let all = free(&engine);
    let mut frames = handle(&engine);
    let giants: Vec<PhysFrame<Size1GiB>> = std::iter::from_fn(|| frames.allocate_frame()).collect();
    assert_eq!(giants.iter().map(|f| f.start_address().as_u64() >> 30).collect::<Vec<_>>(), [2, 3]);
    let huge: Vec<PhysFrame<Size2MiB>> = std::iter::from_fn(|| frames.allocate_frame()).collect();
    assert_eq!(huge.len(), 512);
    assert!(huge.iter().all(|f| f.start_address().is_aligned(2u64 << 20)));
    assert_eq!(FrameAllocator::<Size4KiB>::allocate_frame(&mut frames), None);
    assert_eq!(free(&engine), 0);

    // SAFETY: nobody uses them. A huge frame may go home in small ones, a gigantic one in huge
    // ones.
    unsafe {
        frames.deallocate_frame(giants[0]);
        for i in 0..512 {
            frames.deallocate_frame(PhysFrame::<Size2MiB>::containing_address(
                giants[1].start_address() + i * (2 << 20),
            ));
        }
        for f in &huge {
            for i in 0..512 {
                frames.deallocate_frame(PhysFrame::<Size4KiB>::containing_address(
                    f.start_address() + i * 4096,
                ));
            }
        }
    }
    assert_eq!(free(&engine), all);
    // And all of that is whole again.
    let again: Vec<PhysFrame<Size1GiB>> = std::iter::from_fn(|| frames.allocate_frame()).collect();
    assert_eq!(again.len(), 2);
    engine.validate().unwrap();
}

#[test]
fn wrong_frees_are_refused_and_change_nothing() {
    let engine = engine(1, 512, 4096, SingleCpu);
    let mut frames = handle(&engine);
    let frame: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
    let before = free(&engine);
    let pfn = Pfn::new(frame.start_address().as_u64() / FRAME_SIZE);
    // SAFETY: nobody uses any of this memory: it is not there.
    unsafe {
        let refuse = |result| assert_eq!(free(&engine), before, "{result:?}");
        frames.try_deallocate_frame(frame).unwrap();
        frames.try_deallocate_frame(frame).unwrap_err();
        frames.allocate_frame().map(|f: PhysFrame<Size2MiB>| assert_eq!(f, frame)).unwrap();
        let small = PhysFrame::<Size4KiB>::containing_address(frame.start_address());
        frames.try_deallocate_frame(small).unwrap();
        assert_eq!(frames.try_deallocate_frame(frame), Err(FreeError::DoubleFree { pfn }));
        assert_eq!(frames.try_deallocate_frame(small), Err(FreeError::DoubleFree { pfn }));
        // Taken again, so that the whole of it is in use.
        engine.alloc_contig_range(FrameRange::new(pfn, 1).unwrap(), |_| false).unwrap();
        let nowhere = PhysFrame::<Size1GiB>::containing_address(x86_64::PhysAddr::new(5 << 30));
        refuse(frames.try_deallocate_frame(nowhere));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            frames.deallocate_frame(nowhere)
        }));
        let message = *panicked.unwrap_err().downcast::<String>().unwrap();
        assert!(
            message.contains("deallocate_frame") && message.contains("pfn 0x140000"),
            "{message}"
        );
        assert_eq!(free(&engine), before);
        frames.deallocate_frame(frame);
    }
    assert_eq!(free(&engine), 4096);
}

#[test]
fn page_tables_of_the_real_crate() {
    // 16 MiB of memory of this process stand for physical memory, from frame 0x1000 on.
    const FRAMES: u64 = 4096;
    const FIRST: u64 = 0x1000;
    let layout = Layout::from_size_align((FRAMES * FRAME_SIZE) as usize, 4096).unwrap();
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    let offset = VirtAddr::from_ptr(memory.wrapping_sub((FIRST * FRAME_SIZE) as usize));

    let engine = engine(1, FIRST, FRAMES, SingleCpu);
    let mut frames = handle(&engine);
    let mut users = handle(&engine).migratetype(Migratetype::Movable);
    let root: PhysFrame<Size4KiB> = frames.allocate_frame().unwrap();
    // SAFETY: the frame is ours and within `memory`; a zeroed page is an empty table.
    let (root, mut tables) = unsafe {
        let table: *mut PageTable = (offset + root.start_address().as_u64()).as_mut_ptr();
        table.write(PageTable::new());
        (root, OffsetPageTable::new(&mut *table, offset))
    };
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
    let page = |i: u64| {
        Page::<Size4KiB>::containing_address(VirtAddr::new(0x4000_0000_0000 + i * 0x20_0000))
    };
    let mut mapped = Vec::new();
    for i in 0..1000 {
        let frame = users.allocate_frame().unwrap();
        // SAFETY: these tables are never loaded.
        unsafe { tables.map_to(page(i), frame, flags, &mut frames).unwrap().ignore() };
        mapped.push(frame);
    }
    let huge: PhysFrame<Size2MiB> = users.allocate_frame().unwrap();
    let huge_page = Page::<Size2MiB>::containing_address(VirtAddr::new(0x5000_0000_0000));
    // SAFETY: these tables are never loaded.
    unsafe { tables.map_to(huge_page, huge, flags, &mut frames).unwrap().ignore() };
    for (i, frame) in mapped.iter().enumerate() {
        let address = page(i as u64).start_address() + 0x123;
        assert_eq!(tables.translate_addr(address), Some(frame.start_address() + 0x123));
    }
    // The root; one table of level 3 for each of the two places; two of level 2 and one; 1,000 of
    // level 1.
    assert_eq!(free(&engine), FRAMES - 1000 - 512 - 1 - 2 - 3 - 1000);

    for (i, frame) in mapped.iter().enumerate() {
        let (unmapped, flush) = tables.unmap(page(i as u64)).unwrap();
        flush.ignore();
        assert_eq!(unmapped, *frame);
        // SAFETY: it is mapped nowhere.
        unsafe { users.deallocate_frame(unmapped) };
    }
    tables.unmap(huge_page).unwrap().1.ignore();
    // SAFETY: it is mapped nowhere; and all tables but the root are of `frames`, and empty.
    unsafe {
        users.deallocate_frame(huge);
        tables.clean_up(&mut frames);
        frames.deallocate_frame(root);
    }
    assert_eq!(free(&engine), FRAMES);
    engine.validate().unwrap();
    // SAFETY: allocated above with this layout.
    unsafe { std::alloc::dealloc(memory, layout) };
}

#[test]
fn a_handle_for_each_cpu_and_frees_from_any() {
    let engine = engine(3, 0, 1 << 16, Threads::new(3));
    let (send, receive) = std::sync::mpsc::sync_channel::<PhysFrame<Size4KiB>>(64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cpu = engine.own(CpuId::new(1)).unwrap();
            let mut frames = handle(&cpu);
            let send = send;
            for _ in 0..20_000 {
                send.send(frames.allocate_frame().unwrap()).unwrap();
            }
        });
        scope.spawn(|| {
            let cpu = engine.on(CpuId::new(2));
            let mut frames = handle(&cpu);
            for frame in receive {
                // SAFETY: the other thread has sent it away.
                unsafe { frames.deallocate_frame(frame) };
            }
            cpu.flush().unwrap();
        });
    });
    assert_eq!(free(&engine), 1 << 16);
    assert_eq!(
        engine.totals().cpus.allocs[1][Order::ZERO.index()] + engine.totals().cpus.allocs[0][0],
        20_000
    );
    engine.validate().unwrap();
}
