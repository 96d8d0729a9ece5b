//! The tests run against one mutant, the cheapest first, until one fails.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use crate::list::Mutant;
use crate::scratch::{CHOSEN, Program, Scratch};

/// Seconds of a CPU beyond three times what a program needs: one that takes longer is taken to be
/// without end.
const SPARE: u64 = 30;

/// The programs, and what they cost without a mutant.
pub(crate) struct Trials {
    package: PathBuf,
    programs: Vec<Program>,
    /// They are not all there are.
    some: bool,
    /// Only the test that a mutant names first.
    first: bool,
    /// Seconds of a CPU, by program and by which tests of it; found out when first needed.
    costs: BTreeMap<(String, String), u64>,
}

/// What came of running a program.
struct Run {
    /// The first test that failed, or what else became of it; `None` where all passed.
    failed: Option<String>,
    /// Seconds of CPU time.
    seconds: u64,
}

impl Trials {
    /// `some`: what a mutant names first may be missing. `first`: nothing else is run.
    pub(crate) fn new(scratch: &Scratch, programs: Vec<Program>, some: bool, first: bool) -> Self {
        Self { package: scratch.package(), programs, some, first, costs: BTreeMap::new() }
    }

    /// Who notices the mutant of that number, if anybody does.
    pub(crate) fn noticed(
        &mut self,
        number: usize,
        mutant: &Mutant,
    ) -> Result<Option<String>, String> {
        let first = mutant.first();
        if let Some((name, tests)) = first {
            let program = self.programs.iter().position(|program| program.name == name);
            if program.is_none() && !self.some {
                return Err(format!("{}: there are no tests called {name}", mutant.name));
            }
            if let Some(program) = program {
                if let Some(by) = self.one(program, tests, number)? {
                    return Ok(Some(by));
                }
            }
        }
        if self.first {
            return Ok(None);
        }
        let mut others = Vec::new();
        for at in 0..self.programs.len() {
            let is_loom = self.programs[at].name == "loom";
            let done = first
                .is_some_and(|(name, tests)| name == self.programs[at].name && tests.is_empty());
            if !done {
                // What loom has to say of an ordering is worth more than what this machine does
                // with it. Of all else it has the last word, since it takes longest.
                others.push((is_loom != mutant.is_ordering(), self.cost(at, "")?, at));
            }
        }
        others.sort_unstable();
        for (_, _, at) in others {
            if let Some(by) = self.one(at, "", number)? {
                return Ok(Some(by));
            }
        }
        Ok(None)
    }

    /// Runs tests of a program against a mutant.
    fn one(
        &mut self,
        program: usize,
        tests: &str,
        number: usize,
    ) -> Result<Option<String>, String> {
        let limit = 3 * self.cost(program, tests)? + SPARE;
        let program = &self.programs[program];
        let run = self.run(program, tests, Some(number), limit)?;
        Ok(run.failed.map(|failed| format!("{}: {failed}", program.name)))
    }

    /// What tests of a program cost without a mutant, where they must pass.
    fn cost(&mut self, program: usize, tests: &str) -> Result<u64, String> {
        let program = &self.programs[program];
        let key = (program.name.clone(), tests.to_owned());
        if let Some(&seconds) = self.costs.get(&key) {
            return Ok(seconds);
        }
        let run = self.run(program, tests, None, u64::from(u32::MAX))?;
        if let Some(failed) = run.failed {
            return Err(format!("{} fails without a mutant: {failed}", program.name));
        }
        self.costs.insert(key, run.seconds);
        Ok(run.seconds)
    }

    fn run(
        &self,
        program: &Program,
        tests: &str,
        mutant: Option<usize>,
        limit: u64,
    ) -> Result<Run, String> {
        // CPU time, not the clock's: the machine may be busy with other things. `times` tells of it
        // last.
        let script = r#"(ulimit -t "$0"; exec "$@" 2>&1); status=$?; times >&2; exit $status"#;
        let mut command = Command::new("bash");
        command
            .current_dir(&self.package)
            .args(["-c", script])
            .arg(limit.to_string())
            .arg(&program.path);
        command.env_remove(CHOSEN).env("RUST_BACKTRACE", "0");
        if program.name == "loom" {
            command
                .arg(if tests.is_empty() { "loom_" } else { tests })
                .env("LOOM_MAX_PREEMPTIONS", "3");
        } else if !tests.is_empty() {
            command.arg(tests);
        }
        if let Some(number) = mutant {
            command.env(CHOSEN, number.to_string());
        }
        let output = command.output().map_err(|error| format!("bash cannot be run: {error}"))?;
        let (told, times) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let failed =
            told.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let failed = match (output.status.code(), failed) {
            (Some(0), _) => None,
            (_, Some(test)) => Some(test.rsplit("::").next().unwrap_or(test).to_owned()),
            // 128 and SIGXCPU, or SIGKILL.
            (Some(152 | 137) | None, _) => Some("does not end".to_owned()),
            (Some(status), _) => Some(format!("ends with status {status}")),
        };
        Ok(Run { failed, seconds: cpu_seconds(&times) })
    }
}

/// The CPU time of bash's children, by the last line of its `times`: `1m2.345s 0m0.678s`.
fn cpu_seconds(times: &str) -> u64 {
    let seconds = |time: &str| {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    };
    let last = times.lines().last().unwrap_or_default();
    last.split_whitespace().filter_map(seconds).sum::<f64>().ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::cpu_seconds;

    #[test]
    fn bash_tells_how_long_its_children_took() {
        assert_eq!(cpu_seconds("0m0.004s 0m0.002s\n1m2.300s 0m0.600s\n"), 63);
        assert_eq!(cpu_seconds(""), 0);
    }
}
