//! A line of `authorized_keys`: a key, and what it may do.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::{KeyError, PublicKey, shown};

/// What the owner of a key may do. With neither list it may move memory, and touch no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Directories beneath which files may be read; absolute.
    pub read: Vec<PathBuf>,
    /// Directories beneath which files may be written; absolute.
    pub write: Vec<PathBuf>,
    /// Who that is, for logs.
    pub comment: String,
}

impl Grant {
    /// All that the process itself may do: for whom the host has let in already.
    #[must_use]
    pub fn everything(comment: &str) -> Self {
        let root = || vec![PathBuf::from("/")];
        Self { read: root(), write: root(), comment: comment.to_owned() }
    }

    /// Whether it is all that the process itself may do.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        let root = [PathBuf::from("/")];
        self.read == root && self.write == root
    }
}

/// A key and its grant: `read=/data write=/in KEY comment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorized {
    /// Whose.
    pub key: PublicKey,
    /// What they may do.
    pub grant: Grant,
}

impl FromStr for Authorized {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut grant = Grant::default();
        let mut rest = text.trim();
        while let Some((name, value)) = option(rest) {
            let (value, after) = word(value)?;
            let list = match name {
                "read" => &mut grant.read,
                "write" => &mut grant.write,
                _ => return Err(KeyError::Option { found: shown(name) }),
            };
            list.push(directory(&value)?);
            rest = after.trim_start();
        }
        let mut words = rest.split_whitespace();
        let key = PublicKey::from_words(&mut words)?;
        grant.comment = words.collect::<Vec<_>>().join(" ");
        Ok(Self { key, grant })
    }
}

impl fmt::Display for Authorized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = [("read", &self.grant.read), ("write", &self.grant.write)];
        for (name, directory) in options.iter().flat_map(|(name, list)| list.iter().map(move |d| (name, d))) {
            let escaped = directory.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
            write!(f, "{name}=\"{escaped}\" ")?;
        }
        self.key.fmt(f)?;
        if !self.grant.comment.is_empty() {
            write!(f, " {}", self.grant.comment)?;
        }
        Ok(())
    }
}

/// The name of the option at the start of `text`, and what follows its `=`. A key has `=` only behind a space.
fn option(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| c == '=' || c == '"' || c.is_whitespace())?;
    text[end..].strip_prefix('=').map(|value| (&text[..end], value))
}

/// The value at the start of `text`, where `"` keeps spaces together and `\` takes the next character as it is, and the rest.
fn word(text: &str) -> Result<(String, &str), KeyError> {
    let (mut value, mut quoted, mut escaped) = (String::new(), false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ if c.is_whitespace() && !quoted => return Ok((value, &text[at..])),
            _ => value.push(c),
        }
    }
    if quoted || escaped { Err(KeyError::Unquoted) } else { Ok((value, "")) }
}

/// The directory that `value` names.
fn directory(value: &str) -> Result<PathBuf, KeyError> {
    let path = Path::new(value);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || value.contains(char::is_control) {
        return Err(KeyError::Directory { found: shown(value) });
    }
    Ok(path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::KEY;
    use super::*;

    fn read(options: &str) -> Grant {
        format!("{options}{KEY}").parse::<Authorized>().unwrap().grant
    }

    #[test]
    fn a_line_grants_what_it_names() {
        let line: Authorized =
            format!("read=/data/ write=/in read=\"/a b\" {KEY} Ann at  dtn1").parse().unwrap();
        assert_eq!(line.key, PublicKey([1; 32]));
        assert_eq!(line.grant.read, [PathBuf::from("/data"), "/a b".into()]);
        assert_eq!(line.grant.write, [PathBuf::from("/in")]);
        assert_eq!(line.grant.comment, "Ann at dtn1");
        assert_eq!(read(""), Grant::default());
        assert_eq!(read("read=/a\\ b\\\"c ").read, [PathBuf::from("/a b\"c")]);
        let shown = line.to_string();
        assert_eq!(shown.parse::<Authorized>().unwrap(), line, "{shown}");
    }

    #[test]
    fn a_bad_line_is_told_with_the_mend() {
        for (options, said) in [
            ("from=/x ", "\"from\" is no option: write read=/DIRECTORY or write=/DIRECTORY before the key"),
            ("read=data ", "\"data\" is no directory to grant: write an absolute path without \"..\""),
            ("read=/a/../etc ", "\"/a/../etc\" is no directory to grant"),
            ("read= ", "\"\" is no directory to grant"),
            ("read=\"/a ", "a quotation does not end"),
            ("/data ", "\"/data\" is no kind of key"),
        ] {
            let error = format!("{options}{KEY}").parse::<Authorized>().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
