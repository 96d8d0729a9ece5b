//! What can go wrong, as one value: the allocator's own errors, the kernel's, and those of this
//! crate.

use std::{fmt, io};

use freehold::{AllocError, BulkFreeError, ConfigError, FreeError, Pfn, Violation};

/// Why a call did nothing. Whatever it was: no frame is lost, and the arena is as it was before the
/// call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The allocator refused: most often, there is no free chunk of that size.
    Alloc(AllocError),
    /// There are not so many free frames in a row.
    NoRun {
        /// How many were asked for.
        frames: u64,
    },
    /// The allocator refused a free: the frame is free already, was never handed out, or is not of
    /// this arena.
    Free(FreeError),
    /// The allocator refused a frame of a bulk free. Those before it in the slice have been freed.
    BulkFree(BulkFreeError),
    /// The allocator cannot serve this configuration.
    Config(ConfigError),
    /// The kernel refused a system call.
    Os {
        /// Which call.
        call: &'static str,
        /// The error number, as `errno(3)` has it.
        errno: i32,
        /// How many bytes it was about.
        bytes: u64,
        /// What usually helps.
        hint: &'static str,
    },
    /// This process was forked off the one that made the arena. The frames belong to the parent;
    /// make a new arena.
    Forked,
    /// The system's pages are not 4 KiB, which is what a frame is.
    PageSize {
        /// The size they have.
        bytes: usize,
    },
    /// A knob of the builder is out of its range.
    Knob {
        /// Its name.
        knob: &'static str,
        /// The value given.
        value: u64,
        /// The range.
        allowed: &'static str,
    },
    /// The invariant walk found something broken: a defect.
    Broken(Violation),
    /// The frames are free, but the OS does not back them, and the arena's
    /// [limit](crate::Builder::resident_limit) on resident memory is reached.
    Limit {
        /// The limit.
        bytes: u64,
    },
    /// The hard limit of a [tenant](crate::Tenants), or of one above it, is reached.
    TenantLimit {
        /// The limit.
        frames: u64,
    },
    /// No allocation of a [tenant](crate::Tenants) begins at the frame that was to be freed.
    NoAllocation {
        /// The frame.
        pfn: Pfn,
    },
    /// A signal handler has called while its thread was inside its first call on an arena. Inside
    /// later calls it is not found out: that no handler calls is a promise.
    Reentered,
    /// Frames outside the arena were named.
    OutsideArena {
        /// The first of them.
        pfn: Pfn,
    },
}

impl Error {
    /// A failed system call.
    pub(crate) fn os(
        call: &'static str,
        errno: rustix::io::Errno,
        bytes: u64,
        hint: &'static str,
    ) -> Self {
        Self::Os { call, errno: errno.raw_os_error(), bytes, hint }
    }

    /// The kernel's error, where it is one.
    #[must_use]
    pub fn os_error(&self) -> Option<io::Error> {
        match self {
            Self::Os { errno, .. } => Some(io::Error::from_raw_os_error(*errno)),
            _ => None,
        }
    }

    /// Whether more memory, or less use of it, would have helped: the arena is full, or the kernel
    /// has no memory left.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Alloc(error) => {
                matches!(error, AllocError::NoMemory { .. } | AllocError::NoRange { .. })
            }
            Self::NoRun { .. } | Self::Limit { .. } | Self::TenantLimit { .. } => true,
            Self::Os { errno, .. } => *errno == rustix::io::Errno::NOMEM.raw_os_error(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc(error) => error.fmt(f),
            Self::NoRun { frames } => write!(f, "there are no {frames} free frames in a row"),
            Self::Free(error) => error.fmt(f),
            Self::BulkFree(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Os { call, errno, bytes, hint } => {
                write!(
                    f,
                    "{call} over {bytes} bytes: {}; {hint}",
                    io::Error::from_raw_os_error(*errno)
                )
            }
            Self::Forked => {
                f.write_str("the arena belongs to the parent process; make a new one after fork")
            }
            Self::PageSize { bytes } => {
                write!(f, "pages of {bytes} bytes: only 4096 are supported")
            }
            Self::Knob { knob, value, allowed } => write!(f, "{knob} = {value}: must be {allowed}"),
            Self::Broken(violation) => write!(f, "broken invariant: {violation}"),
            Self::Limit { bytes } => write!(
                f,
                "the arena's limit of {bytes} bytes of resident memory is reached; free or trim, or \
                 raise it"
            ),
            Self::TenantLimit { frames } => {
                write!(f, "a tenant's hard limit of {frames} frames is reached; free, or raise it")
            }
            Self::NoAllocation { pfn } => {
                write!(f, "no allocation of a tenant begins at {pfn}")
            }
            Self::Reentered => f.write_str(
                "called from a signal handler that has interrupted another call of its thread",
            ),
            Self::OutsideArena { pfn } => write!(f, "{pfn} is not a frame of this arena"),
        }
    }
}

impl std::error::Error for Error {}

macro_rules! wrap {
    ($($from:ident => $into:ident),*) => {
        $(impl From<$from> for Error {
            fn from(error: $from) -> Self {
                Self::$into(error)
            }
        })*
    };
}

wrap!(AllocError => Alloc, FreeError => Free, BulkFreeError => BulkFree, ConfigError => Config);

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Os { .. } => error.os_error().unwrap_or_else(|| io::Error::other(error)),
            _ if error.is_out_of_memory() => io::Error::new(io::ErrorKind::OutOfMemory, error),
            _ => io::Error::other(error),
        }
    }
}
