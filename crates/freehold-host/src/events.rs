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

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::Arena;

    /// Events as lines: level, and each field with its value.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }

    impl Subscriber for Heard {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "freehold_host"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn what_is_given_back_refused_and_changed_is_told() {
        let heard = Heard::default();
        tracing::subscriber::with_default(heard.clone(), || {
            let builder = Arena::builder(4 << 20).reserve(8 << 20).resident_limit(4 << 20);
            let arena = builder.build().unwrap();
            let all = arena.frames(1024).unwrap();
            assert!(arena.frames(1).is_err());
            arena.grow(2 << 20).unwrap();
            assert!(arena.frames(1).is_err(), "at the limit");
            drop(all);
            arena.trim().unwrap();
            arena.shrink(2 << 20).unwrap();
        });
        let heard = heard.0.lock().unwrap().join("\n");
        for line in [
            "WARN message=exhausted frames=1 attempts=1",
            "INFO message=grown frames=512",
            "WARN message=at the limit resident=2 limit=2",
            "DEBUG message=memory given back blocks=2 frames=0 bytes=4194304",
            "INFO message=shrunk frames=512",
        ] {
            assert!(heard.contains(line), "no {line} in:\n{heard}");
        }
    }
}
