//! What went wrong while an engine was driven: how often, and the first few word for word.

/// How many are kept word for word.
const KEPT: usize = 5;

/// Keeps the first errors.
#[derive(Debug, Default)]
pub struct Errors {
    count: u64,
    first: Vec<String>,
}

impl Errors {
    #[cold]
    pub fn add(&mut self, error: String) {
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push(error);
        }
    }

    /// All of them in a sentence, if there are any.
    pub fn finding(&self) -> Option<String> {
        let first = self.first.join("; ");
        (self.count > 0).then(|| {
            format!("{} operations that must succeed failed, the first: {first}", self.count)
        })
    }
}
