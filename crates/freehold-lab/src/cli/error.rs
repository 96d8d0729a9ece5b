//! Errors as the user sees them: one line that says what and where, and a hint what to do.

use std::fmt;
use std::io;

#[derive(Debug)]
pub struct CliError {
    message: String,
    hint: Option<String>,
    broken_pipe: bool,
}

impl CliError {
    /// An error with nothing more to say.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, broken_pipe: false }
    }

    /// Standard output cannot be written to.
    pub fn of_output(error: &io::Error) -> Self {
        Self {
            broken_pipe: error.kind() == io::ErrorKind::BrokenPipe,
            ..Self::new(format!("cannot write to standard output: {error}"))
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds that where there is something to do.
    #[must_use]
    pub fn hint_if(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into).or(self.hint);
        self
    }

    /// What is wrong, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn own_hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Any error of what a command uses: its second line, where there is one, is the hint.
impl<E: std::error::Error> From<E> for CliError {
    fn from(error: E) -> Self {
        let text = error.to_string();
        match text.split_once("\nhint: ") {
            Some((message, hint)) => Self::new(message).hint(hint),
            None => Self::new(text),
        }
    }
}
