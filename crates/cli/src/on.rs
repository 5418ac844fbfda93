//! `farlink on`: run a command on an emulated host.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use clap::Args;
use farlink_emulator::client::Client;
use farlink_emulator::control;
use farlink_host::contain::Events;

use crate::emulate::{socket, split_target};
use crate::exit::NOT_FOUND;
use crate::output::tell;

/// Run a command on a host of a running emulation, as if from here.
///
/// Without a COMMAND, a shell. Its addresses are in the environment: FARLINK_A, FARLINK_A6, ….
#[derive(Debug, Args)]
pub(crate) struct On {
    /// Which host: wan/b.
    #[arg(value_name = "NAME/HOST")]
    target: String,
    /// What to run there.
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl On {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (name, host) = split_target(&self.target)?;
        let (namespaces, state) = Client::named(&socket(), name)?.enter(host)?;
        let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
        let command = if self.command.is_empty() { shell() } else { self.command.clone() };
        namespaces.enter_process()?;
        let events = Events::new()?;
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]);
        control::set_environment(&mut program, &state);
        match namespaces.spawn(&mut program) {
            Ok(child) => Ok(ExitCode::from(events.wait_for(child.id()))),
            Err(error) => {
                tell(&format!("farlink: start {:?} on {}: {error}", command[0], self.target));
                Ok(ExitCode::from(NOT_FOUND))
            }
        }
    }
}
