//! The command that runs another command on another host: `ssh`, or what the user has instead.

use std::process::{Command, Stdio};

/// A program and its arguments, and the host to give it: `ssh -p 2222`, `dtn2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    words: Vec<String>,
    host: String,
}

impl Ssh {
    /// `command` (`ssh` where absent), split into words as a shell would, for `host`, which is `HOST` or `USER@HOST`.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn new(command: Option<&str>, host: &str) -> Result<Self, CommandError> {
        let words = split(command.unwrap_or("ssh"))?;
        // An option would run whatever its author likes.
        if host.starts_with('-')
            || host.is_empty()
            || host.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            return Err(CommandError::Host { host: host.to_owned() });
        }
        Ok(Self { words, host: host.to_owned() })
    }

    /// The host, as it is given to ssh.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The program.
    pub(super) fn program(&self) -> &str {
        &self.words[0]
    }

    /// What runs `remote` there: by the login shell of the user, as ssh does. Its standard error is the user's, and so is the
    /// terminal, where ssh asks for passwords.
    pub(super) fn command(&self, remote: &str) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(&self.host).arg(remote).stderr(Stdio::inherit());
        command
    }

    /// The host's name or address for TCP, as the user's ssh configuration has it (`ssh -G`); as it was given where there is none.
    pub(super) fn host_name(&self) -> String {
        let given = self.host.rsplit('@').next().unwrap_or_default().to_owned();
        let shown = Command::new(&self.words[0])
            .args(&self.words[1..])
            .args(["-G", &self.host])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let Ok(shown) = shown else { return given };
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let name = text.lines().find_map(|line| line.strip_prefix("hostname "));
        name.filter(|_| shown.status.success()).map_or(given, |name| name.trim().to_owned())
    }
}

/// The words of `text`: separated by spaces, kept together by quotes; `\` takes the next character as it is, but not between
/// single quotes.
fn split(text: &str) -> Result<Vec<String>, CommandError> {
    let unquoted = || CommandError::Unquoted { command: text.to_owned() };
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => {
                word.get_or_insert_default().push(characters.next().ok_or_else(unquoted)?);
            }
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(unquoted());
    }
    words.extend(word);
    if words.is_empty() { Err(CommandError::Empty) } else { Ok(words) }
}

/// Why there is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Nothing in it.
    #[error("the command of --ssh is empty: write ssh and its options")]
    Empty,
    /// A quotation without an end.
    #[error("{command:?}: a quotation does not end")]
    Unquoted {
        /// As given.
        command: String,
    },
    /// No host.
    #[error("{host:?} is no host: write HOST or USER@HOST")]
    Host {
        /// As given.
        host: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        for (text, words) in [
            ("ssh", &["ssh"][..]),
            ("  ssh -p  2222 ", &["ssh", "-p", "2222"]),
            ("ssh -o 'ProxyCommand nc %h %p'", &["ssh", "-o", "ProxyCommand nc %h %p"]),
            (r#"ssh -i "my \"key\"" a\ b '\'"#, &["ssh", "-i", "my \"key\"", "a b", "\\"]),
            ("ssh ''", &["ssh", ""]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        assert_eq!(split(" "), Err(CommandError::Empty));
        for text in ["ssh 'x", "ssh \"x", "ssh \\"] {
            assert!(matches!(split(text), Err(CommandError::Unquoted { .. })), "{text}");
        }
    }

    #[test]
    fn an_option_is_no_host() {
        for host in ["-oProxyCommand=x", "", "a b", "a\nb"] {
            let error = Ssh::new(None, host).unwrap_err().to_string();
            assert_eq!(error, format!("{host:?} is no host: write HOST or USER@HOST"));
        }
        assert_eq!(Ssh::new(Some("/no/such/ssh"), "ann@dtn2").unwrap().host_name(), "dtn2");
    }
}
