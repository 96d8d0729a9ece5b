//! Kinds of work that a command can do: listed, described, and known by name on the command line.

/// An enum of kinds from a table of their names, in the order in which they are listed and run, and
/// names back and forth. `$what` is what a reader calls one, `$command` what lists them.
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($(#[$meta:meta])* $Kind:ident, ($what:literal, $command:literal): $($kind:ident: $name:expr,)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $Kind {
            $($kind,)*
        }

        impl $Kind {
            /// All of them, in their order.
            pub const ALL: [Self; [$(Self::$kind),*].len()] = [$(Self::$kind),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }

        impl std::fmt::Display for $Kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $Kind {
            type Err = $crate::nearest::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let unknown = || Self::Err::new(($what, name), Self::ALL.map(Self::name), $command);
                Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
            }
        }
    };
}

/// An enum of kinds from a table of what each is, its name among that.
#[doc(hidden)]
#[macro_export]
macro_rules! kinds {
    ($(#[$meta:meta])* $Kind:ident, $About:ty, $known:tt: $($kind:ident: $about:expr,)*) => {
        $crate::names! { $(#[$meta])* $Kind, $known: $($kind: $about.name,)* }

        impl $Kind {
            pub const fn about(self) -> &'static $About {
                match self {
                    $(Self::$kind => &$about,)*
                }
            }
        }
    };
}

pub use crate::{kinds, names};
