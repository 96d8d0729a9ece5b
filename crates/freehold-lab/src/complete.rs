//! `freehold completions` and `freehold man`: what a shell and man(1) need to know of the command
//! line. Both are made from its definition, so they cannot lag behind it.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::error::CliError;
use super::{Cli, Outcome, output};

const COMPLETIONS_HELP: &str = "\
Where to put them:
  bash  freehold completions bash > ~/.local/share/bash-completion/completions/freehold
  zsh   freehold completions zsh > ~/.zfunc/_freehold
        with fpath+=~/.zfunc before compinit in ~/.zshrc
  fish  freehold completions fish > ~/.config/fish/completions/freehold.fish";

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = COMPLETIONS_HELP)]
pub(super) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<Outcome, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "freehold", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Fine)
}

#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub(super) struct ManArgs {
    /// Write a page for the command and one for each subcommand into this folder, instead of the
    /// command's to standard output.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn man(args: &ManArgs) -> Result<Outcome, CliError> {
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        // Into memory, which does not fail.
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        output::print(&String::from_utf8_lossy(&page))?;
        return Ok(Outcome::Fine);
    };
    let pages = write_pages(folder).map_err(|error| {
        CliError::new(format!("cannot write to {}: {error}", folder.display()))
            .hint("give --out a folder that may be written to")
    })?;
    output::complain(&format!("wrote {pages} pages to {}", folder.display()));
    Ok(Outcome::Fine)
}

/// How many there are then.
fn write_pages(folder: &Path) -> std::io::Result<usize> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    Ok(fs::read_dir(folder)?
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|end| end == "1"))
        .count())
}
