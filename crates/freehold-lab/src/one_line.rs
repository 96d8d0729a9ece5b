//! Lists of numbers in JSON.

use serde::{Serialize, Serializer, ser::Error};

/// A list of numbers in one line of the JSON that is otherwise indented for people.
pub struct OneLine<T>(pub T);

impl<T: Serialize> Serialize for OneLine<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        one_line(&self.0, serializer)
    }
}

/// Writes numbers in one line, for `serialize_with`.
pub fn one_line<S: Serializer>(numbers: &impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_string(numbers).map_err(S::Error::custom)?;
    serde_json::value::RawValue::from_string(text).map_err(S::Error::custom)?.serialize(serializer)
}
