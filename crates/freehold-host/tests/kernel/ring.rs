//! As much of io_uring as a test needs: one buffer registered for good, and reads into it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    /// Submission: flags, dropped, array. Completion: overflow, first entry, flags.
    more: [u32; 3],
    reserved: u32,
    address: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    submissions: u32,
    completions: u32,
    unused: [u32; 8],
    submission: Offsets,
    completion: Offsets,
}

pub(crate) struct Ring {
    fd: OwnedFd,
    parameters: Parameters,
    submission: *mut u8,
    completion: *mut u8,
    entries: *mut u8,
}

impl Ring {
    /// A ring that knows `len` bytes from `base` on, as they are in memory now.
    pub(crate) fn register(base: *mut u8, len: usize) -> io::Result<Self> {
        let mut parameters = Parameters::default();
        // SAFETY: the structure that the call fills.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, &raw mut parameters) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor made just now.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let map = |bytes: u32, offset: i64| {
            // SAFETY: a new mapping of the ring.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes as usize,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    fd.as_raw_fd(),
                    offset,
                )
            };
            assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
            at.cast::<u8>()
        };
        let submission = map(parameters.submission.more[2] + parameters.submissions * 4, 0);
        let completion =
            map(parameters.completion.more[1] + parameters.completions * 16, 0x0800_0000);
        let entries = map(64 * parameters.submissions, 0x1000_0000);
        let buffer = libc::iovec { iov_base: base.cast(), iov_len: len };
        // SAFETY: one buffer, of memory that outlives the ring.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_register, fd.as_raw_fd(), 0, &raw const buffer, 1)
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd, parameters, submission, completion, entries })
    }

    fn word(base: *mut u8, offset: u32) -> &'static AtomicU32 {
        // SAFETY: a word of the ring, whose mapping is never taken away.
        unsafe { base.add(offset as usize).cast::<AtomicU32>().as_ref() }.unwrap()
    }

    /// Reads into registered memory (`IORING_OP_READ_FIXED`), and waits until it is there.
    pub(crate) fn read(&self, file: &std::fs::File, at: *mut u8, len: u32) -> i32 {
        let (submission, completion) = (&self.parameters.submission, &self.parameters.completion);
        let tail = Self::word(self.submission, submission.tail);
        let place = tail.load(Ordering::Relaxed) % self.parameters.submissions;
        // SAFETY: the entry is ours until the tail moves behind it; the fields are where
        // `struct io_uring_sqe` has them.
        unsafe {
            let entry = self.entries.add(64 * place as usize);
            entry.write_bytes(0, 64);
            entry.write(4);
            entry.add(4).cast::<i32>().write(file.as_raw_fd());
            entry.add(16).cast::<u64>().write(at as u64);
            entry.add(24).cast::<u32>().write(len);
        }
        Self::word(self.submission, submission.more[2] + 4 * place).store(place, Ordering::Relaxed);
        tail.fetch_add(1, Ordering::Release);
        // SAFETY: submits one and waits for one.
        let done =
            unsafe { libc::syscall(libc::SYS_io_uring_enter, self.fd.as_raw_fd(), 1, 1, 1, 0, 0) };
        assert_eq!(done, 1, "{}", io::Error::last_os_error());
        let head = Self::word(self.completion, completion.head);
        let at = head.load(Ordering::Acquire) % self.parameters.completions;
        let result = Self::word(self.completion, completion.more[1] + 16 * at + 8);
        let result = result.load(Ordering::Relaxed) as i32;
        head.fetch_add(1, Ordering::Release);
        result
    }
}

/// A file of a page of that byte, already without a name.
pub(crate) fn page_of(byte: u8) -> std::fs::File {
    use std::sync::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("freehold-ring-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, vec![byte; 4096]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}
