//! Descriptors that the program closes without knowing whose they are.

use std::os::unix::fs::FileExt;

use freehold_host::{Arena, Backing};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::child::fork;
use crate::common::{in_memory, open_descriptors};

/// Gives two runs back, for which one call with a descriptor is made; whether both went.
fn gives_back(arena: &Arena) -> bool {
    let blocks: Vec<_> = (0..4).map(|_| arena.frames(512).unwrap()).collect();
    for (i, mut block) in blocks.into_iter().enumerate() {
        block.fill(1);
        if i % 2 == 1 {
            let _ = block.into_raw();
        }
    }
    arena.trim().unwrap().blocks == 2
}

/// What a daemon does first.
fn close_all() {
    // SAFETY: closes descriptors that others rely on, which is what is tried here.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

#[test]
fn a_file_that_got_the_number_of_a_closed_memfd_keeps_its_bytes_and_stays_open() {
    for backing in [Backing::Memfd, Backing::Private] {
        let status = fork(|| {
            let arena = Arena::builder(8 << 20).backing(backing).build().unwrap();
            let mut frames = arena.frames(1024).unwrap();
            frames.fill(7);
            close_all();
            let path = std::env::temp_dir().join(format!("freehold-{}", std::process::id()));
            let mut files = Vec::new();
            for _ in 0..8 {
                // As many as had been open: one of them has the number.
                let mut options = std::fs::OpenOptions::new();
                let options = options.read(true).write(true).create(true);
                files.push(options.open(&path).unwrap());
            }
            files[0].write_all_at(&vec![b'D'; 4 << 20], 0).unwrap();
            drop(frames);
            let released = arena.trim().unwrap();
            let resident = in_memory(&arena);
            // SAFETY: only looked at.
            let none = unsafe { arena.memfd() }.is_none();
            drop(arena);
            let bytes = std::fs::read(&path).unwrap();
            let _ = std::fs::remove_file(&path);
            none && released.blocks == 2
                && resident == 0
                && bytes.len() == 4 << 20
                && bytes.iter().all(|&byte| byte == b'D')
                && files.iter().all(|file| file.write_all_at(b"x", 0).is_ok())
        });
        assert_eq!(status, 0, "{backing:?}");
    }
}

#[test]
fn arenas_of_private_memory_keep_no_descriptor() {
    let status = fork(|| {
        let before = open_descriptors();
        let arenas: Vec<_> = (0..50).map(|_| Arena::with_size(8 << 20).unwrap()).collect();
        let none = open_descriptors() == before;
        none && arenas.iter().all(gives_back) && open_descriptors() == before
    });
    assert_eq!(status, 0);
}

#[test]
fn a_memfd_is_sealed_and_holds_no_code() {
    use rustix::fs::{SealFlags, fcntl_get_seals, ftruncate};
    let arena = Arena::builder(8 << 20).backing(Backing::Memfd).build().unwrap();
    // SAFETY: frames are neither read nor written through it.
    let fd = unsafe { arena.memfd() }.unwrap();
    let seals = fcntl_get_seals(fd).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL), "{seals:?}");
    assert!(ftruncate(fd, 0).is_err() && ftruncate(fd, 1 << 30).is_err());
    let mode = rustix::fs::fstat(fd).unwrap().st_mode;
    // Before Linux 6.3 there is no such file.
    assert!(mode & 0o111 == 0 || !seals.contains(SealFlags::EXEC), "{mode:o}");
    // Memory is given back all the same.
    arena.frames(512).unwrap().fill(1);
    assert_eq!(arena.trim().unwrap().blocks, 1);
}

/// `RLIMIT_NOFILE`: only a memfd cannot do without a descriptor.
#[test]
fn a_process_that_may_open_no_more_files_gives_memory_back_all_the_same() {
    let status = fork(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum }).unwrap();
        gives_back(&Arena::with_size(8 << 20).unwrap())
    });
    assert_eq!(status, 0);
}
