//! `farlink cast send` and `farlink cast receive`: one sender, many receivers, by multicast.

use std::process::ExitCode;

use clap::{Args, Subcommand};

mod class;
mod end;
mod receive;
mod send;
mod table;
mod telling;

/// Send files to many receivers at once, by multicast; one that is slow costs the others nothing.
///
/// Exit codes: 0 every receiver has everything; 1 some lack something, and each was named; 2 refused, nothing was begun; 3 the sender
/// went away, or what was begun broke off; 130 interrupted, but by a Ctrl-C that ends a `--watch` in order.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cast {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Send(send::Send),
    Receive(receive::Receive),
}

impl Cast {
    /// Sends or receives.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Send(verb) => verb.run(),
            Verb::Receive(verb) => verb.run(),
        }
    }
}

/// So many products, in words.
fn products(count: impl Into<u64>) -> String {
    let count = count.into();
    if count == 1 { "1 product".to_owned() } else { format!("{count} products") }
}
