//! `farlink mpi env` and `farlink mpi run`: MPI programs over Farlink, as they are.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use farlink_host::delegate::Delegate;

mod arguments;
mod environment;
mod launcher;
mod library;
mod mistyped;
mod program;
mod proof;

use environment::{Mpi as Family, Settings, Variable};
use launcher::Launcher;
use proof::{Judged, Proof};

use crate::exit;
use crate::output::{print, tell};

/// Run MPI programs over long connections, as they are: Open MPI's and MPICH's load Farlink as their network.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Mpi {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Env(Env),
    Run(Run),
}

impl Mpi {
    /// Prints, or runs.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Env(verb) => verb.run(),
            Verb::Run(verb) => verb.run(),
        }
    }
}

/// Print the variables that make MPI programs use Farlink, for a shell: eval "$(farlink mpi env)".
///
/// One of them, FARLINK_JOB_KEY, is a new secret each time: processes that share it are of one job and hear each other, and nobody else
/// does. All processes of a job must have the same.
#[derive(Debug, Args)]
struct Env {
    #[command(flatten)]
    options: Options,
}

/// Run mpirun with the variables set, here and for the ranks on other hosts, and see that the ranks used Farlink.
///
/// A rank that uses Farlink writes a line into a private directory of this host, which is removed at the end. The ranks of this host must
/// all have written theirs, and so must those of any other host that shares the directory; of hosts that do not share it nothing is known.
/// Else this says so and exits with 1, so that a job which ran over another network does not pass for one over Farlink.
///
/// Exit codes: that of the command; 1 also where it exited with 0 and ranks did not use Farlink; 2 refused, nothing was started.
#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    options: Options,
    /// Do not look whether ranks used Farlink: none of them may run on this host
    #[arg(long)]
    unproven: bool,
    /// mpirun or mpiexec, and its arguments; another launcher, which must hand its environment on, with --mpi
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    settings: Settings,
    /// Whose programs they are; otherwise those of the mpirun that is started, or found
    #[arg(long, value_enum, value_name = "WHOSE")]
    mpi: Option<Family>,
}

impl Env {
    fn run(self) -> anyhow::Result<ExitCode> {
        mistyped::complaints(std::env::vars_os()).iter().for_each(|line| tell(line));
        let library = library::directory()?;
        let family = match self.options.mpi {
            Some(family) => family,
            None => launcher::family("mpirun".as_ref())
                .context("there is nothing to tell by whose MPI it is: say --mpi open-mpi or --mpi mpich")?,
        };
        let (variables, _) = environment::variables(family, &library, &self.options.settings)?;
        let lines: Vec<_> = variables.iter().flat_map(Variable::export).collect();
        print(&lines);
        Ok(ExitCode::SUCCESS)
    }
}

impl Run {
    fn run(self) -> anyhow::Result<ExitCode> {
        let library = library::directory()?;
        let Some((program, arguments)) = self.command.split_first() else { bail!("there is no command") };
        let launcher = Launcher::of(program, self.options.mpi)?;
        launcher.accepts(arguments)?;
        let named: Vec<_> = arguments::programs(arguments).map(arguments::variables).collect();
        mistyped::complaints(std::env::vars_os().chain(named.concat())).iter().for_each(|line| tell(line));
        let (variables, read) = environment::variables(launcher.family(), &library, &self.options.settings)?;
        named.iter().try_for_each(|its| environment::agree(&variables, its, launcher.is_own()))?;
        let unproven = self.unproven || arguments::is_question(arguments);
        if !unproven {
            self.options.settings.suits_this_host(&read)?;
        }
        let proof = if unproven { None } else { Some(Proof::expect()?) };
        let proof_variable = proof.as_ref().map(|proof| Variable::new(proof::VARIABLE, proof.directory()));
        let mut command = Command::new(program);
        for Variable { name, value, .. } in variables.iter().chain(&proof_variable) {
            command.env(name, value);
        }
        let handed_on = environment::handed_on(variables.iter().chain(&proof_variable));
        command.args(launcher.arguments(arguments, &handed_on));
        let code = Delegate::new()
            .and_then(|delegate| delegate.run(&mut command))
            .with_context(|| format!("start {program:?}"))?;
        // Whoever ended it wants no more of it.
        let judged = if code < exit::SIGNAL { proof.map(|proof| proof.judge(code != 0)) } else { None };
        match judged {
            Some(Err(error)) => {
                tell(&format!("farlink: {error}"));
                return Ok(ExitCode::from(if code == 0 { exit::SOME } else { code }));
            }
            Some(Ok(Judged::NoneBegan)) if launcher.is_own() => {
                let library = library.display();
                tell(&format!(
                    "farlink: no rank of this host began with Farlink: it failed before, or chose another network (by an option, a script, a file of parameters); \
                     where MPI says that no component (\"PML cm\") could be opened, and no line above says why, see that every \
                     host of the job has {library}/libfarlink-fi.so, and may read it"
                ));
            }
            Some(Ok(Judged::Unknown)) if code == 0 => {
                tell(
                    "farlink: what ranks left was removed from the temporary directory: whether all used Farlink is not known",
                );
            }
            _ => {}
        }
        Ok(ExitCode::from(code))
    }
}
