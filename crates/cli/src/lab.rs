//! `farlink lab`: the Python side, an external command as git and cargo have them.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::bail;
use clap::Args;

/// Measure throughput profiles, and explain them: see `farlink lab --help`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Lab {
    /// Handed to farlink-lab as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Lab {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let own = std::env::current_exe()?;
        let beside = own.with_file_name("farlink-lab");
        let program = if beside.exists() { beside } else { PathBuf::from("farlink-lab") };
        let error = Command::new(&program).args(&self.arguments).env("FARLINK", &own).exec();
        if error.kind() == std::io::ErrorKind::NotFound {
            bail!(
                "farlink-lab is not installed: `make setup` in the source tree, or pip install farlink-lab"
            );
        }
        bail!("start {}: {error}", program.display());
    }
}
