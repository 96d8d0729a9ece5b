//! What of the package is not Python: the command as a function, during which other threads of
//! Python go on.

use std::ffi::OsString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The command with these arguments: its exit code, and what it would have printed on standard
/// output and on standard error.
#[pyfunction]
fn called(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<(u8, Vec<u8>, String)> {
    let done = py.detach(|| freehold_lab::called(arguments));
    let (code, caught) = done.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((code, caught.output, caught.said))
}

/// The command itself; its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| freehold_lab::status(arguments))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(called, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)
}
