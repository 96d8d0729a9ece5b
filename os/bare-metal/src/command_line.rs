//! What the kernel is told when it is started: words separated by blanks.
//!
//! | word | |
//! |---|---|
//! | `cpus=N` | fail unless N CPUs are found |
//! | `only=NAME` | run the self-tests whose names contain NAME |
//! | `bench` | run the benchmarks after the self-test |
//! | `probe` | say hello and end: does this machine boot at all? |
//! | `inject=failure` | a self-test that fails |
//! | `inject=panic` | a panic |
//! | `inject=fault` | a page fault that nobody expects |
//! | `inject=no-shootdown` | other CPUs are not told to forget translations: the self-test must notice |
//! | `inject=hang` | nothing ever ends |

/// A defect, built in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inject {
    /// A self-test that fails.
    Failure,
    /// A panic.
    Panic,
    /// A page fault that nobody expects.
    Fault,
    /// TLB shootdowns stop at the CPU that asks for them.
    NoShootdown,
    /// An endless loop.
    Hang,
}

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommandLine<'a> {
    /// CPUs that must be found.
    pub cpus: Option<usize>,
    /// What the names of the self-tests to run contain.
    pub only: &'a str,
    /// Benchmarks, too.
    pub bench: bool,
    /// Say hello and end.
    pub probe: bool,
    /// See [`Inject`].
    pub inject: Option<Inject>,
}

impl<'a> CommandLine<'a> {
    /// Takes the words apart.
    ///
    /// # Errors
    ///
    /// The first word that means nothing here: a test that was asked for by a wrong name must not
    /// pass.
    pub fn parse(text: &'a str) -> Result<Self, &'a str> {
        let mut line = Self::default();
        for word in text.split_ascii_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match (name, value) {
                ("cpus", value) => line.cpus = Some(value.parse().map_err(|_| word)?),
                ("only", value) => line.only = value,
                ("bench", "") => line.bench = true,
                ("probe", "") => line.probe = true,
                ("inject", "failure") => line.inject = Some(Inject::Failure),
                ("inject", "panic") => line.inject = Some(Inject::Panic),
                ("inject", "fault") => line.inject = Some(Inject::Fault),
                ("inject", "no-shootdown") => line.inject = Some(Inject::NoShootdown),
                ("inject", "hang") => line.inject = Some(Inject::Hang),
                _ => return Err(word),
            }
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_named() {
        let line = CommandLine::parse("  cpus=4 bench only=lazyfree inject=no-shootdown ").unwrap();
        let inject = Some(Inject::NoShootdown);
        assert_eq!(
            line,
            CommandLine {
                cpus: Some(4),
                only: "lazyfree",
                bench: true,
                inject,
                ..CommandLine::default()
            }
        );
        assert_eq!(CommandLine::parse(""), Ok(CommandLine::default()));
        for wrong in ["cpus=four", "benches", "inject=everything", "bench=1"] {
            assert_eq!(CommandLine::parse(wrong), Err(wrong));
        }
    }
}
