//! `farlink completions SHELL` and `farlink man DIR`: what the command line says of itself, for shells and for
//! man. Both are made from the definition that parses the arguments, so neither can lag behind it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::print;

/// Print the completions of a shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Writes the completions of `command` to standard output.
    pub(crate) fn run(self, mut command: Command) -> anyhow::Result<ExitCode> {
        let name = command.get_name().to_owned();
        // In memory first: the generator panics where it cannot write, as into a closed pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        print(&script);
        Ok(ExitCode::SUCCESS)
    }
}

/// Write the man pages, one a verb.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Where to write them; it is made where it is not there.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    /// Writes the pages of `command` and of each verb that is not hidden.
    pub(crate) fn run(self, command: Command) -> anyhow::Result<ExitCode> {
        let shown = self.directory.display();
        fs::create_dir_all(&self.directory).with_context(|| format!("make {shown}"))?;
        clap_mangen::generate_to(command, &self.directory)
            .with_context(|| format!("write man pages to {shown}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::new("farlink")
            .subcommand(Command::new("emulate").arg(clap::arg!(--rtt <TIME> "Round-trip time")))
            .subcommand(Command::new("man").hide(true))
    }

    #[test]
    fn every_shell_has_completions() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "farlink", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("emulate") && script.contains("rtt"), "{shell}: {script}");
        }
    }

    #[test]
    fn every_verb_that_is_shown_has_a_page() {
        let directory = std::env::temp_dir().join(format!("man-{}", std::process::id()));
        Man { directory: directory.clone() }.run(command()).unwrap();
        let page = fs::read_to_string(directory.join("farlink-emulate.1"));
        let hidden = directory.join("farlink-man.1").exists();
        fs::remove_dir_all(&directory).unwrap();
        assert!(page.unwrap().contains("rtt"));
        assert!(!hidden);
    }
}
