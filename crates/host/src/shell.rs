//! Commands that people are told to type.

/// `word` as one word of a shell's command.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:@/=+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_sees_one_word() {
        assert_eq!(quoted("eth0.7"), "eth0.7");
        assert_eq!(quoted("a=1 2"), "'a=1 2'");
        assert_eq!(quoted("x'$(y)"), r"'x'\''$(y)'");
        assert_eq!(quoted(""), "''");
    }
}
