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
