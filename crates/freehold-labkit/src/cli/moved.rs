//! Options and commands that went elsewhere: who writes the old one is told the new one.

use std::ffi::OsString;

use super::error::CliError;

/// The old spelling, and what to write instead.
pub type Moved = (&'static str, &'static str);

/// Looks for old spellings among the arguments before a `--`.
///
/// # Errors
///
/// The first that is found, with what to write instead.
pub fn check(arguments: &[OsString], moved: &[Moved]) -> Result<(), CliError> {
    let texts = arguments.iter().map(|argument| argument.to_string_lossy());
    for text in texts.take_while(|text| text != "--") {
        let name = text.split_once('=').map_or(&*text, |(name, _)| name);
        if let Some((old, new)) = moved.iter().find(|(old, _)| *old == name) {
            return Err(CliError::new(format!("{old} was removed")).hint(*new));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_spelling_is_told_the_new_one_and_what_is_passed_on_is_not_looked_at() {
        let moved = [("--html", "freehold report")];
        let found = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            check(&arguments, &moved).err().map(|error| error.to_string())
        };
        for old in [&["--json", "--html", "x"][..], &["--html=x"]] {
            let said = found(old).expect("an old spelling");
            assert!(
                said.contains("--html was removed") && said.contains("freehold report"),
                "{said}"
            );
        }
        assert_eq!(found(&["--htm", "--", "--html"]), None);
    }
}
