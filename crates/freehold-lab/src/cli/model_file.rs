//! A cost model in a file, as `freehold simulate --json` prints one.

use std::fs;
use std::path::Path;

use super::error::CliError;

use crate::model::Model;

/// Reads it; without a file, the model that is checked in.
pub fn read(path: Option<&Path>) -> Result<Model, CliError> {
    let Some(path) = path else { return Ok(Model::standard()) };
    let hint = "'freehold simulate --json' prints one under \"model\", to be changed";
    let text = fs::read_to_string(path).map_err(|error| {
        CliError::new(format!("cannot read the model {}: {error}", path.display())).hint(hint)
    })?;
    Model::parse(&text)
        .map_err(|error| CliError::new(format!("{}: {error}", path.display())).hint(hint))
}
