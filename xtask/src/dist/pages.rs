//! Completions and manual pages, from the commands' own definitions.

use std::fs;
use std::path::Path;

use clap_complete::Shell;

/// A command without `help SUBCOMMAND`, of which each would have a page.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Every command that is distributed.
fn commands() -> Vec<clap::Command> {
    vec![without_help(freehold_lab::command())]
}

/// A manual page whose indented lines (examples, in columns) stay as they are instead of being
/// filled up to the width of the page.
fn with_columns(page: &str) -> String {
    let (mut text, mut is_inside) = (String::new(), false);
    for line in page.lines() {
        let is_column = line.starts_with("  ");
        if is_column != is_inside {
            text.push_str(if is_column { ".nf\n" } else { ".fi\n" });
            is_inside = is_column;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Where each shell looks for completions, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Writes them.
///
/// # Errors
///
/// What could not be written.
pub(super) fn write(share: &Path) -> Result<(), String> {
    let made = |folder: &Path| {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
    };
    for mut command in commands() {
        let name = command.get_name().to_owned();
        for (shell, folder) in SHELLS {
            let folder = share.join(folder);
            made(&folder)?;
            clap_complete::generate_to(shell, &mut command, &name, &folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
    }
    let folder = share.join("man/man1");
    made(&folder)?;
    for command in commands() {
        clap_mangen::generate_to(command, &folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        fs::read_to_string(&path)
            .and_then(|page| fs::write(&path, with_columns(&page)))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    // bash looks for a file that is called like the command.
    let folder = share.join("bash-completion/completions");
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "bash") {
            fs::rename(&path, path.with_extension(""))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_completions_and_a_page_for_each_subcommand() {
        let share = std::env::temp_dir().join(format!("freehold-pages-{}", std::process::id()));
        write(&share).unwrap();
        for command in commands() {
            let name = command.get_name();
            assert!(share.join(format!("bash-completion/completions/{name}")).is_file());
            assert!(share.join(format!("zsh/site-functions/_{name}")).is_file());
            assert!(share.join(format!("fish/vendor_completions.d/{name}.fish")).is_file());
            assert!(share.join(format!("man/man1/{name}.1")).is_file());
            for subcommand in command.get_subcommands() {
                let page = share.join(format!("man/man1/{name}-{}.1", subcommand.get_name()));
                let text = fs::read_to_string(&page).unwrap();
                assert!(text.contains("SYNOPSIS"), "{}", page.display());
            }
        }
        let page = fs::read_to_string(share.join("man/man1/freehold.1")).unwrap();
        assert!(page.contains("\n.nf\n  freehold   "), "examples in columns: {page}");
        let shell = share.join("bash-completion/completions/freehold");
        assert!(fs::read_to_string(shell).unwrap().contains("--worse"), "an option of compare");
        fs::remove_dir_all(share).unwrap();
    }
}
