//! What may go wrong behind this interface, as Rust has it; [`error`](crate::error) tells it to C.

use core::fmt;

use freehold::{AllocError, BulkFreeError, ConfigError, FreeError, HotplugError, Violation};

/// Any failure behind this interface.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The pointer of that name is null.
    Null(&'static str),
    /// A value of that name is out of its range.
    Argument {
        what: &'static str,
        value: u64,
        allowed: &'static str,
    },
    Order {
        order: u8,
    },
    Migratetype {
        migratetype: u8,
        most: freehold::Migratetype,
    },
    /// The arena has been destroyed.
    #[cfg(feature = "std")]
    Ended,
    NotOwned {
        cpu: u16,
    },
    Alloc(AllocError),
    Free(FreeError),
    BulkFree(BulkFreeError),
    Config(ConfigError),
    Hotplug(HotplugError),
    Broken(Violation),
    #[cfg(feature = "std")]
    Host(freehold_host::Error),
}

macro_rules! wrap {
    ($($from:ty => $into:ident),*) => {
        $(impl From<$from> for Failure {
            fn from(error: $from) -> Self {
                Self::$into(error)
            }
        })*
    };
}

wrap!(
    AllocError => Alloc,
    FreeError => Free,
    BulkFreeError => BulkFree,
    ConfigError => Config,
    HotplugError => Hotplug,
    Violation => Broken
);

#[cfg(feature = "std")]
impl From<freehold_host::Error> for Failure {
    fn from(error: freehold_host::Error) -> Self {
        use freehold_host::Error as Host;
        match error {
            Host::Alloc(error) => Self::Alloc(error),
            // What no zone has is no frame of the arena's.
            Host::Free(FreeError::OutOfZone { pfn } | FreeError::PastEnd { pfn }) => {
                Self::Host(Host::OutsideArena { pfn })
            }
            Host::Free(error) => Self::Free(error),
            Host::BulkFree(error) => Self::BulkFree(error),
            Host::Config(error) => Self::Config(error),
            Host::Broken(error) => Self::Broken(error),
            other => Self::Host(other),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(name) => write!(f, "{name} is a null pointer"),
            Self::Argument { what, value, allowed } => {
                write!(f, "{what} = {value}: must be {allowed}")
            }
            Self::Order { order } => {
                write!(f, "order {order} is too large: the largest is {}", freehold::Order::MAX)
            }
            Self::Migratetype { migratetype, most } => {
                write!(f, "migratetype {migratetype}: must be 0 to {}", most.index())
            }
            #[cfg(feature = "std")]
            Self::Ended => f.write_str("the arena has been destroyed"),
            Self::NotOwned { cpu } => write!(f, "the handle of CPU {cpu} has been released"),
            Self::Alloc(error) => error.fmt(f),
            Self::Free(error) => error.fmt(f),
            Self::BulkFree(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Hotplug(error) => error.fmt(f),
            Self::Broken(error) => error.fmt(f),
            #[cfg(feature = "std")]
            Self::Host(error) => error.fmt(f),
        }
    }
}
