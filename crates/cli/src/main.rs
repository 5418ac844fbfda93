//! The `farlink` command: one file a verb; words in, plan out.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this crate, and no other, speaks to people")]

mod auto;
mod cast;
mod completions;
mod congestion;
mod copy;
mod doctor;
mod emulate;
mod exit;
mod far_end;
mod habits;
mod keygen;
mod keys_again;
mod lab;
mod link;
mod memory;
mod mpi;
mod on;
mod output;
mod path_options;
mod refusals;
mod serve;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Move memory, files, messages and feeds over long dedicated connections, and learn what such a connection can do.
#[derive(Debug, Parser)]
#[command(name = "farlink", version, max_term_width = 110, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Emulate(emulate::Emulate),
    On(on::On),
    Link(link::Link),
    Serve(serve::Serve),
    Memory(memory::Memory),
    Copy(Box<copy::Copy>),
    Cast(cast::Cast),
    Mpi(mpi::Mpi),
    Keygen(keygen::Keygen),
    Congestion(congestion::Congestion),
    Doctor(doctor::Doctor),
    Lab(lab::Lab),
    Completions(completions::Completions),
    #[command(hide = true)]
    FarEnd(far_end::FarEnd),
    #[command(hide = true)]
    Man(completions::Man),
}

fn main() -> ExitCode {
    // It fails for no signal that there is.
    let _ = farlink_host::signal::hear_of_children();
    let parsed = Cli::command()
        .try_get_matches_from(with_negatives_joined(std::env::args_os()))
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    let done = match cli.verb {
        Verb::Emulate(verb) => verb.run(),
        Verb::On(verb) => verb.run(),
        Verb::Link(verb) => verb.run(),
        Verb::Serve(verb) => verb.run(),
        Verb::Memory(verb) => verb.run(),
        // The order of its rules is in the matches alone.
        Verb::Copy(verb) => verb.run(matches.subcommand_matches("copy").unwrap_or(&matches)),
        Verb::Cast(verb) => verb.run(),
        Verb::Mpi(verb) => verb.run(),
        Verb::Keygen(verb) => verb.run(),
        Verb::Congestion(verb) => verb.run(),
        Verb::Doctor(verb) => verb.run(),
        Verb::Lab(verb) => verb.run(),
        Verb::Completions(verb) => verb.run(Cli::command()),
        Verb::FarEnd(verb) => verb.run(),
        Verb::Man(verb) => verb.run(Cli::command()),
    };
    let code = done.unwrap_or_else(|error| {
        output::tell(&format!("farlink: {error:#}"));
        ExitCode::from(exit::REFUSED)
    });
    // All is done, and whoever reads what it said has not got it.
    if output::is_lost() && code == ExitCode::SUCCESS { ExitCode::from(exit::REFUSED) } else { code }
}

/// Arguments with `--rate -1gbit` written as `--rate=-1gbit`, so that it is refused as the rate that it is meant to be
/// and not as an option that nobody knows.
///
/// No option of ours starts with a digit. What stands behind `--`, and what the lab is asked, is another's to read.
fn with_negatives_joined(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let arguments: Vec<OsString> = arguments.collect();
    let (_, command) = verb(arguments.iter().skip(1).map_while(|word| word.to_str()));
    let mut joined: Vec<OsString> = Vec::new();
    let mut is_ours = true;
    for (place, argument) in arguments.into_iter().enumerate() {
        is_ours &= argument != "--" && !(place == 1 && argument == "lab");
        let takes_value =
            |option: &&mut OsString| option.to_str().is_some_and(|word| takes_value(&command, word));
        match joined.last_mut().filter(takes_value) {
            Some(option) if is_ours && is_negative(&argument) => {
                option.push("=");
                option.push(argument);
            }
            _ => joined.push(argument),
        }
    }
    joined
}

/// Whether `word` is an option of `command` behind which a value stands.
fn takes_value(command: &Command, word: &str) -> bool {
    let of = |option: &Arg| match word.strip_prefix("--") {
        Some(name) => option.get_long_and_visible_aliases().is_some_and(|names| names.contains(&name)),
        None => {
            let letter =
                word.strip_prefix('-').filter(|rest| rest.len() == 1).and_then(|rest| rest.chars().next());
            letter.is_some_and(|letter| option.get_short() == Some(letter))
        }
    };
    command.get_arguments().find(|option| of(option)).is_some_and(|option| option.get_action().takes_values())
}

/// Whether `text` starts as a number below zero does.
fn is_negative(text: &OsStr) -> bool {
    matches!(text.as_encoded_bytes(), [b'-', b'0'..=b'9', ..] | [b'-', b'.', b'0'..=b'9', ..])
}

/// Says in one line what is wrong with the arguments; help and version are no errors.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Who closed the pipe has read enough.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(exit::REFUSED);
    }
    let text = error.to_string();
    let reason: Vec<_> = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).collect();
    let reason = reason.join(" ");
    let reason = reason.split("For more information").next().unwrap_or_default();
    // Nobody means an option as the name of a file.
    let reason = reason.split("  tip: to pass '").next().unwrap_or_default();
    let mut reason = reason.trim().trim_start_matches("error: ").replace("  ", "; ");
    let is_option = |value: &ContextValue| value.to_string().starts_with('-');
    let is_word = error.get(ContextKind::InvalidArg).is_some_and(|value| !is_option(value));
    // Of those that take a command, where its first word is taken for one of theirs.
    if is_word && text.contains("-- <COMMAND>") {
        reason.push_str(": write -- before the command");
    }
    let words: Vec<_> = std::env::args_os().skip(1).map_while(|word| word.into_string().ok()).collect();
    let (verb, _) = verb(words.iter().map(String::as_str));
    let named = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(habit) = habits::of(&verb, &named)
    {
        reason = format!("{named}: {habit}");
    }
    let is_number = |value: &ContextValue| value.to_string().parse::<f64>().is_ok();
    if verb == "farlink copy"
        && named.starts_with("--streams")
        && std::env::args_os().any(|word| word == "-P")
        && error.get(ContextKind::InvalidValue).is_some_and(|value| !is_number(value))
    {
        reason.push_str(habits::OF_STREAMS);
    }
    output::tell(&format!("farlink: {reason} (see {verb} --help)"));
    ExitCode::from(exit::REFUSED)
}

/// The verb that `arguments` begin with, as far as they are right, and its command.
fn verb<'a>(arguments: impl Iterator<Item = &'a str>) -> (String, Command) {
    let (mut known, mut verb) = (Cli::command(), "farlink".to_owned());
    for argument in arguments {
        let Some(found) = known.find_subcommand(argument).cloned() else { break };
        verb += &format!(" {}", found.get_name());
        known = found;
    }
    (verb, known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(line: &str) -> String {
        let joined = with_negatives_joined(line.split(' ').map(OsString::from));
        joined.into_iter().map(|each| each.into_string().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_number_below_zero_is_the_value_of_the_option_before_it() {
        assert_eq!(
            joined("farlink emulate --rate -1gbit --rtt -.5ms"),
            "farlink emulate --rate=-1gbit --rtt=-.5ms"
        );
        assert_eq!(joined("farlink link wan --loss -1%"), "farlink link wan --loss=-1%");
        assert_eq!(joined("farlink memory b -P -2"), "farlink memory b -P=-2");
        assert_eq!(joined("farlink copy -n -P -2 a b"), "farlink copy -n -P=-2 a b");
    }

    #[test]
    fn help_is_that_of_the_verb_as_far_as_it_is_known() {
        let of = |line: &str| verb(line.split(' ')).0;
        assert_eq!(of("copy -a x y"), "farlink copy");
        assert_eq!(of("cast send --copy"), "farlink cast send");
        assert_eq!(of("cast sned"), "farlink cast");
        assert_eq!(of("copi x"), "farlink");
    }

    #[test]
    fn nothing_else_is_joined() {
        for line in [
            "farlink memory b --quiet -j",
            "farlink memory -1 -2",
            "farlink emulate --rtt=1ms -1",
            "farlink emulate --rtt 1ms -- tail --lines -5",
            "farlink lab search --seed -1",
            "farlink copy -n -4 a b",
            "farlink copy --verbose -6 a b",
        ] {
            assert_eq!(joined(line), line);
        }
    }
}
