//! `cargo xtask pages`: completions and manual pages of the `freehold` command, from its own
//! definition. Needs the laboratory as a library, which nothing else here does: feature `pages`.

use std::fs;
use std::io::Error;
use std::path::Path;

use clap_complete::Shell;

/// Where each shell looks for completions, below `share`.
const SHELLS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "freehold"),
    (Shell::Zsh, "zsh/site-functions", "_freehold"),
    (Shell::Fish, "fish/vendor_completions.d", "freehold.fish"),
];

/// A command without `help SUBCOMMAND`, of which each would have a page.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Writes them below `share`.
///
/// # Errors
///
/// What could not be written.
pub(crate) fn write(share: &Path) -> Result<(), Error> {
    let mut command = without_help(freehold_lab::command());
    for (shell, folder, name) in SHELLS {
        let folder = share.join(folder);
        fs::create_dir_all(&folder)?;
        // bash looks for a file that is called like the command.
        let made = clap_complete::generate_to(shell, &mut command, "freehold", &folder)?;
        fs::rename(made, folder.join(name))?;
    }
    let folder = share.join("man/man1");
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(command, &folder)
}
