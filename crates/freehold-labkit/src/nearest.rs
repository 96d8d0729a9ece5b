//! Did you mean: which of the names that there are somebody may have had in mind.

/// How much alike two names must be, from 0 to 1.
const ALIKE: f64 = 0.7;

/// The name most like `name`, unless none is much like it.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|known| (strsim::jaro_winkler(name, known), known));
    rated
        .filter(|(alike, _)| *alike > ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// What an error says of it, behind what is wrong.
pub fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// There is nothing of that name among what can be listed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no {what} '{name}'{} ('freehold {command}' lists them all)", did_you_mean(.near.as_deref()))]
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
