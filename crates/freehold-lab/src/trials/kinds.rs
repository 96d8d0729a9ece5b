//! Kinds of work that a command can do: listed, described, and known by name on the command line.

use crate::nearest::{did_you_mean, nearest};

/// An enum of kinds from a table of their names, in the order in which they are listed and run, and
/// names back and forth. `$what` is what a reader calls one, `$command` what lists them.
macro_rules! names {
    ($(#[$meta:meta])* $Kind:ident, ($what:literal, $command:literal):
        $($kind:ident: $name:expr,)*) => {
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
            type Err = $crate::trials::kinds::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let unknown = || Self::Err::new(($what, name), Self::ALL.map(Self::name), $command);
                Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
            }
        }
    };
}

/// An enum of kinds from a table of what each is, its name among that.
macro_rules! kinds {
    ($(#[$meta:meta])* $Kind:ident, $About:ty, $known:tt: $($kind:ident: $about:expr,)*) => {
        $crate::trials::kinds::names! { $(#[$meta])* $Kind, $known: $($kind: $about.name,)* }

        impl $Kind {
            pub const fn about(self) -> &'static $About {
                match self {
                    $(Self::$kind => &$about,)*
                }
            }
        }
    };
}

pub(crate) use {kinds, names};

/// There is nothing of that name among what can be listed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no {what} '{name}'{} ('freehold {command}' lists them \
         all)", did_you_mean(.near.as_deref()))]
pub struct UnknownName {
    what: &'static str,
    name: String,
    near: Option<String>,
    command: &'static str,
}

impl UnknownName {
    /// Of what, beside those there are, and the command that lists them.
    pub fn new(
        (what, name): (&'static str, &str),
        known: impl IntoIterator<Item = &'static str>,
        command: &'static str,
    ) -> Self {
        Self { what, name: name.to_owned(), near: nearest(name, known).map(str::to_owned), command }
    }
}
