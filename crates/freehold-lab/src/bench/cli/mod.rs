//! The command lines of `freehold bench` and `freehold calibrate`.

mod bench;
mod calibrate;

pub(crate) use bench::{BenchArgs, run as bench};
pub(crate) use calibrate::{CalibrateArgs, run as calibrate};
