//! `tracing` events, with the feature of that name; nothing without it.
//!
//! | target `freehold_host` | level | fields |
//! |---|---|---|
//! | `memory given back` | debug | `blocks`, `frames`, `bytes`, `calls`, `cut_short` |
//! | `memory not given back` | warn | `error` |
//! | `exhausted` | warn | `frames`, `attempts` |
//! | `at the limit` | warn | `resident`, `limit`, in blocks of 2 MiB |
//! | `grown`, `shrunk` | info | `frames` |

use crate::Error;
use crate::pass::Released;

#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $text:literal, $($field:ident = $value:expr),*) => {
        tracing::$level!(target: "freehold_host", $($field = $value,)* $text)
    };
}
#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $text:literal, $($field:ident = $value:expr),*) => {{
        $(let _ = $value;)*
    }};
}

pub(crate) fn released(what: &Result<Released, Error>) {
    match what {
        Ok(r) => event!(
            debug,
            "memory given back",
            blocks = r.blocks,
            frames = r.frames,
            bytes = r.bytes,
            calls = r.calls,
            cut_short = r.cut_short
        ),
        Err(error) => event!(warn, "memory not given back", error = error.to_string()),
    }
}

pub(crate) fn exhausted(frames: u64, attempts: u32) {
    event!(warn, "exhausted", frames = frames, attempts = attempts);
}

pub(crate) fn at_the_limit(resident: u64, limit: u64) {
    event!(warn, "at the limit", resident = resident, limit = limit);
}

pub(crate) fn grown(frames: u64) {
    event!(info, "grown", frames = frames);
}

pub(crate) fn shrunk(frames: u64) {
    event!(info, "shrunk", frames = frames);
}
