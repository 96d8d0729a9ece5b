//! `freehold completions`: completions and manual pages, from the command line's own definition.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;

use crate::cli::error::CliError;
use crate::cli::{Outcome, output};

const EXAMPLES: &str = "\
Examples:
  freehold completions bash > ~/.local/share/bash-completion/completions/freehold
  freehold completions --share ~/.local/share   all shells' and the manual pages
  man -l ~/.local/share/man/man1/freehold-replay.1";

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Print this shell's completions.
    #[arg(value_name = "SHELL", required_unless_present = "share")]
    shell: Option<Shell>,

    /// Write completions of bash, zsh and fish and the manual pages into this folder, as `share` of
    /// an installation.
    #[arg(long, value_name = "FOLDER", conflicts_with = "shell")]
    share: Option<PathBuf>,
}

/// Where each shell looks for completions, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/freehold"),
    (Shell::Zsh, "zsh/site-functions/_freehold"),
    (Shell::Fish, "fish/vendor_completions.d/freehold.fish"),
];

pub(crate) fn run(args: &CompletionsArgs) -> Result<Outcome, CliError> {
    match (&args.share, args.shell) {
        (Some(share), _) => write(share).map_err(|error| {
            CliError::new(format!("cannot write to {}: {error}", share.display()))
        })?,
        (None, shell) => output::print(&of(shell.unwrap_or(Shell::Bash)))?,
    }
    Ok(Outcome::Fine)
}

/// A command without `help SUBCOMMAND`, of which each would have a page.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn of(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut without_help(super::command()), "freehold", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn write(share: &Path) -> io::Result<()> {
    for (shell, place) in SHELLS {
        let path = share.join(place);
        fs::create_dir_all(path.parent().unwrap_or(share))?;
        fs::write(path, of(shell))?;
    }
    let folder = share.join("man/man1");
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(without_help(super::command()), &folder)?;
    for page in fs::read_dir(&folder)? {
        let page = page?.path();
        let text = fs::read_to_string(&page)?;
        fs::write(&page, with_columns(&text))?;
    }
    Ok(())
}

/// Indented lines, examples and columns, stay as they are.
fn with_columns(page: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in page.lines() {
        let column = line.starts_with("  ");
        if column != inside {
            text.push_str(if column { ".nf\n" } else { ".fi\n" });
            inside = column;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_completes_every_command_and_each_has_a_page() {
        for shell in Shell::value_variants() {
            let text = of(*shell);
            assert!(text.contains("contiguity") && text.contains("--format"), "{shell}");
        }
        let share = tempfile::tempdir().unwrap();
        write(share.path()).unwrap();
        for command in super::super::command().get_subcommands() {
            let page = share.path().join(format!("man/man1/freehold-{}.1", command.get_name()));
            let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
            assert!(text.contains(".SH NAME"), "{page:?}");
        }
        for (_, place) in SHELLS {
            assert!(share.path().join(place).exists(), "{place}");
        }
        assert_eq!(with_columns("a\n  b\nc\n"), "a\n.nf\n  b\n.fi\nc\n");
    }
}
