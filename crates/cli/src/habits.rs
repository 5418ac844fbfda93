//! Options that people know from other tools, and what they want here.

/// What who writes `option` to `farlink copy` should know, where it is one of rsync's or scp's that is not there.
pub(crate) fn of_copy(option: &str) -> Option<&'static str> {
    Some(match option {
        "-a" | "-r" | "-t" | "-p" | "-l" | "--archive" | "--recursive" | "--times" | "--perms"
        | "--links" => "trees, links, modes and times are always copied: leave it out",
        "-z" | "--compress" => "nothing is compressed: leave it out",
        "--delete" | "--delete-after" | "--delete-before" | "--delete-during" | "--delete-excluded" => {
            "nothing is removed at the destination: there is no such option"
        }
        "--partial" | "--append" | "--append-verify" | "--inplace" | "--partial-dir" => {
            "the same command takes up what was begun: leave it out"
        }
        "--bwlimit" => "write --limit RATE, as in --limit 2gbit",
        "--rsh" => "write --ssh COMMAND",
        _ => return None,
    })
}
