//! All commands as one shell script.

use crate::finding::Finding;
use crate::path::NetworkPath;

/// A script for sh(1) that runs the command of every finding: again and again is as good as once.
///
/// A command that a person should look at first is there as a comment, with the reason.
#[must_use]
pub fn script(findings: &[Finding], path: NetworkPath) -> String {
    let mut text = format!(
        "#!/bin/sh\n# What farlink doctor would mend on this host for {path}. Run it as root; it may run again.\n\
         # Settings last until the host starts anew: what sysctl sets is kept by a file in /etc/sysctl.d.\nset -e\n"
    );
    let mended: Vec<_> =
        findings.iter().filter_map(|finding| Some((finding, finding.command.as_deref()?))).collect();
    for program in PROGRAMS {
        let runs = |(finding, command): &&(&Finding, &str)| {
            finding.caution.is_none() && command.split_whitespace().any(|word| word == program)
        };
        if mended.iter().any(|one| runs(&one)) {
            text += &format!(
                "command -v {program} >/dev/null || {{ echo 'install {program} first' >&2; exit 1; }}\n"
            );
        }
    }
    for (finding, command) in &mended {
        text += &format!("\n# {}: is {}, should be {}\n", finding.name, finding.is, finding.should_be);
        match &finding.caution {
            Some(caution) => text += &format!("# Left to you: {caution}.\n# {command}\n"),
            // Of several in a row set -e heeds the last alone. A ring that is as long as it is to be is no failure, though older ones of
            // ethtool(8) end with 80 then.
            None if command.starts_with("ethtool -G ") => {
                text += &format!("{command} || [ $? -eq 80 ] || exit 1\n");
            }
            None => text += &format!("{command} || exit 1\n"),
        }
    }
    if mended.is_empty() {
        text += "\n# There is nothing to mend.\n";
    }
    text
}

/// Programs that not every host has: without one, nothing is done by half.
const PROGRAMS: [&str; 4] = ["sysctl", "ethtool", "tc", "modprobe"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Value;

    fn finding(command: &str) -> Finding {
        Finding::new("x", Value::Number(0), Value::Number(1), "because").mended_by(command)
    }

    #[test]
    fn commands_stand_in_order_and_cautious_ones_as_comments() {
        let cautious = Finding { caution: Some("look".into()), ..finding("ip link set dev eth0 mtu 9000") };
        let text = script(&[finding("ethtool -G eth0 rx 4096"), cautious], NetworkPath::default());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "#!/bin/sh");
        assert!(lines.contains(&"ethtool -G eth0 rx 4096 || [ $? -eq 80 ] || exit 1"));
        assert!(lines.contains(&"# ip link set dev eth0 mtu 9000"));
        assert!(text.contains("command -v ethtool") && !text.contains("command -v sysctl"), "{text}");
    }

    #[test]
    fn nothing_to_mend_is_said() {
        assert!(script(&[], NetworkPath::default()).contains("nothing to mend"));
    }
}
