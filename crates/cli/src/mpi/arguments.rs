//! What stands behind a launcher: its own options, and the variables that it is told to set for ranks.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::program::{find, is_program};

/// What stands before the program in `arguments`, and is not its own: what is called like a program here, or does not follow an option, or one
/// that takes two words.
pub(super) fn options(arguments: &[OsString]) -> impl Iterator<Item = &OsString> {
    let is_its_program = move |at: usize| {
        let word = &arguments[at];
        if is_option(word) || at.checked_sub(2).is_some_and(|at| has_two_words(&arguments[at..])) {
            return false;
        }
        let follows_option = at.checked_sub(1).is_some_and(|before| is_option(&arguments[before]));
        !follows_option || find(word).is_ok_and(|path| is_program(&path))
    };
    let count = (0..arguments.len()).position(is_its_program).unwrap_or(arguments.len());
    arguments[..count].iter()
}

/// Whether the launcher is asked about itself: it starts no ranks.
pub(super) fn is_question(arguments: &[OsString]) -> bool {
    options(arguments).any(|word| is_one_of(word, &QUESTIONS))
}

/// What the ranks of each program are given, in turn: what stands before a colon goes for one.
pub(super) fn programs(arguments: &[OsString]) -> impl Iterator<Item = &[OsString]> {
    arguments.split(|word| word == ":")
}

/// The variables that ranks of a program are given by the launcher's own options, with their values: Open MPI's parameters are some of them.
pub(super) fn variables(program: &[OsString]) -> Vec<(OsString, OsString)> {
    let mut all = Vec::new();
    let words: Vec<_> = options(program).collect();
    for (at, word) in words.iter().enumerate() {
        let next = |behind: usize| words.get(at + behind).copied();
        if is_one_of(word, &OPEN_MPI)
            && let Some((name, value)) = next(1).and_then(|word| halves(word))
        {
            all.push((name, value));
        }
        if is_one_of(word, &HYDRA)
            && let Some(name) = next(1)
        {
            let two = || Some((name.clone(), next(2)?.clone()));
            all.extend(halves(name).or_else(two));
        }
        if is_one_of(word, &PARAMETERS)
            && let (Some(name), Some(value)) = (next(1), next(2))
        {
            let mut variable = OsString::from("OMPI_MCA_");
            variable.push(name);
            all.push((variable, value.clone()));
        }
    }
    all
}

/// Whether the option that `words` begin with takes two of those behind it: MPICH's takes `NAME=VALUE` as well.
fn has_two_words(words: &[OsString]) -> bool {
    let [option, first, ..] = words else { return false };
    is_one_of(option, &PARAMETERS) || is_one_of(option, &HYDRA) && halves(first).is_none()
}

fn is_option(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-")
}

fn is_one_of(word: &OsStr, options: &[&str]) -> bool {
    options.iter().any(|option| word == *option)
}

/// `NAME=VALUE`.
fn halves(word: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    Some((OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
}

/// Open MPI's way to set a variable, `-x NAME=VALUE`; MPICH's, `-genv NAME VALUE`; and Open MPI's other options of two words.
const OPEN_MPI: [&str; 2] = ["-x", "--x"];
const HYDRA: [&str; 4] = ["-genv", "--genv", "-env", "--env"];
const PARAMETERS: [&str; 4] = ["--mca", "-mca", "--gmca", "-gmca"];

/// What both answer, and start nothing.
const QUESTIONS: [&str; 6] = ["--version", "-version", "-V", "--help", "-help", "-h"];

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn set(text: &str) -> Vec<String> {
        let words = words(text);
        let all = programs(&words).flat_map(variables);
        all.map(|(name, value)| format!("{}={}", name.display(), value.display())).collect()
    }

    #[test]
    fn what_ranks_are_given_is_found_before_each_program() {
        assert_eq!(
            set("-n 2 -x A=1 -x B --mca pml cm -x C=a=b ./a -x D=1"),
            ["A=1", "OMPI_MCA_pml=cm", "C=a=b"]
        );
        assert_eq!(set("-n 1 -x A=1 ./a x : -n 1 --x B=2 ./b -x C=3"), ["A=1", "B=2"]);
        assert_eq!(set("-genv A 1 -n 2 -env B true ./a -env C 3"), ["A=1", "B=true"]);
        assert_eq!(set("-genv A=1 -n 2 -env B=c=d true -genv C 3"), ["A=1", "B=c=d"]);
        assert_eq!(set("-n 2 ./a"), [""; 0]);
    }

    #[test]
    fn a_question_to_the_launcher_is_none_to_a_program() {
        assert!(is_question(&words("--version")) && is_question(&words("-n 2 --help")));
        assert!(!is_question(&words("-n 2 ./a --version")) && !is_question(&[]));
    }

    #[test]
    fn options_of_two_words_are_no_programs() {
        let all = words("--mca btl self -n 2 true --mca pml ob1");
        assert_eq!(options(&all).count(), 5, "until the program");
    }
}
