//! Options that people know from other tools, and what they want here.

/// What is said of a word where the number of streams should be: rsync's `-P` takes none.
pub(crate) const OF_STREAMS: &str = "; what rsync's -P is for, progress and partial files, needs no option";

/// What who writes `option` behind `verb` should know, where it is one of another tool's that is not there.
pub(crate) fn of(verb: &str, option: &str) -> Option<&'static str> {
    match verb {
        "farlink copy" => of_copy(option),
        "farlink memory" => of_memory(option),
        "farlink serve" => of_serve(option),
        "farlink emulate" => of_emulate(option),
        "farlink doctor" => of_doctor(option),
        _ => None,
    }
}

/// iperf3's.
fn of_memory(option: &str) -> Option<&'static str> {
    Some(match option {
        "-t" | "--time" | "--duration" => "write --seconds TIME",
        "-n" | "--num" | "--size" => "write --bytes SIZE",
        "-i" => "write --interval TIME",
        "-w" | "--window" => "write --buffer SIZE",
        "-l" | "--length" | "--len" => "write --block SIZE",
        "--parallel" => "write --streams N",
        "-B" => "write --bind ADDRESS",
        "-O" | "--omit" => {
            "there is no such option: the record's samples tell what to leave out, and farlink lab does"
        }
        "-M" | "--set-mss" => "there is no such option: the path's MTU is found by TCP",
        "--cport" => "the kernel chooses the port here: leave it out",
        "-N" | "--no-delay" => "nothing is held back: leave it out",
        "-A" | "--affinity" => "write taskset -c CPU farlink memory, as for any program",
        "-V" => "write --verbose",
        "-J" => "write --json",
        "-p" | "--port" => "write it behind the host, as in HOST:PORT",
        "-c" | "--client" => "name the host alone",
        "-s" | "--server" => "write farlink serve",
        "-b" | "--bitrate" | "--bandwidth" | "--rate" | "--fq-rate" | "--bwlimit" => {
            "write --limit RATE, or --circuit RATE where that is granted"
        }
        "-u" | "--udp" => "there is no such option: memory goes by TCP",
        "-Z" | "--zerocopy" => "write --zero-copy yes",
        "--bidir" => "there is no such option: run one each way, one of them with --reverse",
        "-4" | "-6" => "name the host by its address",
        _ => return None,
    })
}

/// iperf3's and rsync's.
fn of_serve(option: &str) -> Option<&'static str> {
    Some(match option {
        "-p" => "write --port PORT",
        "-B" | "--address" | "--listen" => "write --bind ADDRESS",
        "-s" | "--server" => "farlink serve is the server: leave it out",
        "-D" | "--daemon" => "it stays in the foreground: packaging/ has a unit for systemd",
        "-1" | "--one-off" => "there is no such option: it serves until Ctrl-C or SIGTERM",
        _ => return None,
    })
}

/// tc's.
fn of_emulate(option: &str) -> Option<&'static str> {
    Some(match option {
        "--delay" | "--latency" => "write --rtt TIME, of both ways together",
        "--bandwidth" | "--bw" => "write --rate RATE",
        "--limit" => "write --queue SIZE",
        _ => return None,
    })
}

/// ping's, and those of this program's other verbs.
fn of_doctor(option: &str) -> Option<&'static str> {
    Some(match option {
        "--rtt" | "--rate" => "write --path RTT,RATE, as in --path 91.6ms,10gbit",
        "--host" | "--target" => "write --to HOST",
        _ => return None,
    })
}

/// rsync's and scp's.
fn of_copy(option: &str) -> Option<&'static str> {
    Some(match option {
        "-a" | "-r" | "-t" | "--archive" | "--recursive" | "--times" | "--perms" | "--links" => {
            "trees, links, modes and times are always copied: leave it out"
        }
        "-p" => "modes and times are always copied: leave it out; for parallel streams write --streams N",
        "-l" => {
            "links are always copied as such: leave it out; for a rate that it keeps to write --limit RATE"
        }
        "-z" | "--compress" => "nothing is compressed: leave it out",
        "--progress" | "--info" => "progress is shown where standard error is a terminal: leave it out",
        "--human-readable" => "sizes and rates have units: leave it out",
        "-c" | "--checksum" => "write --resume, which compares content",
        "-W" | "--whole-file" => {
            "what stands there is compared with --resume alone, and after an attempt that did not end well: leave it out"
        }
        "-S" | "--sparse" => "holes are always kept: leave it out",
        "--mkpath" => {
            "the last directory of the destination is made, and those above it are not: make them with mkdir -p"
        }
        "-i" | "--itemize-changes" => {
            "write --update --dry-run --verbose, which names what would be copied and what stays"
        }
        "--stats" => "the last line has them, and --record FILE keeps them",
        "--log-file" => "write --manifest FILE for the names, and --record FILE for the rest",
        "--existing" | "--ignore-non-existing" => {
            "there is no such option: write the names that are there to a list, for --files-from FILE"
        }
        "--ignore-existing" => {
            "there is no such option: --update leaves what is newer there, and what is as old and as long"
        }
        "--hash" => "content is checked by BLAKE3, and --manifest FILE keeps the digests: leave it out",
        "--checksum-choice" | "--cc" => "content is checked by BLAKE3: leave it out",
        "--size-only" | "--modify-window" => "there is no such option: --update goes by size and time",
        "-I" | "--ignore-times" => "only --update goes by size and time: leave both out",
        "-L" | "--copy-links" | "-k" | "--copy-dirlinks" => {
            "links are copied as links: there is no such option, and a source that ends in / is followed"
        }
        "-H" | "--hard-links" => {
            "there is no such option: each name of a file is copied as a file of its own"
        }
        "-A" | "--acls" | "-X" | "--xattrs" => {
            "there is no such option: of a file's metadata its mode and time are copied"
        }
        "-o" | "--owner" | "-g" | "--group" | "--numeric-ids" | "--chown" => {
            "there is no such option: files belong to whoever writes them"
        }
        "-D" | "--devices" | "--specials" => "devices and pipes are not copied, and are named: leave it out",
        "-x" | "--one-file-system" => "there is no such option: --exclude what is mounted there",
        "-R" | "--relative" => "write --files-from FILE, whose names keep their directories",
        "-m" | "--prune-empty-dirs" => "empty directories are copied: there is no such option",
        "-b" | "--backup" | "--backup-dir" => "what is replaced is not kept: there is no such option",
        "--remove-source-files" => "nothing is removed at the source: there is no such option",
        "--max-size" | "--min-size" => {
            "there is no such option: write the names to a list, for --files-from FILE"
        }
        "-4" | "--ipv4" | "-6" | "--ipv6" => "name the host by its address, or write --bind ADDRESS",
        "--port" => "write it behind the host, as in farlink://HOST:PORT/path; for ssh --ssh 'ssh -p PORT'",
        "--contimeout" => "write --timeout TIME",
        "--delete" | "--del" | "--delete-delay" | "--delete-after" | "--delete-before"
        | "--delete-during" | "--delete-excluded" => {
            "nothing is removed at the destination: there is no such option"
        }
        "--partial" | "--append" | "--append-verify" | "--inplace" | "--partial-dir" => {
            "the same command takes up what was begun: leave it out"
        }
        "--rsync-path" => {
            "the far end is the farlink in the PATH there, and sent where there is none: there is no such option"
        }
        "--no-owner" | "--no-o" | "--no-group" | "--no-g" | "--no-motd" | "--no-perms" | "--no-p"
        | "--no-times" | "--no-t" => {
            "there is no such option: modes and times are always copied, owners never"
        }
        "--chmod" => "there is no such option: modes are as at the source",
        "--filter" | "-f" | "-F" => {
            "write --include GLOB and --exclude GLOB in the order in which they are to be tried"
        }
        "--safe-links" | "--copy-unsafe-links" | "--munge-links" => {
            "links are copied as links: there is no such option"
        }
        "-T" | "--temp-dir" => "what is not whole is beside what it will be: there is no such option",
        "--compress-level" | "--compress-choice" | "--zc" => "nothing is compressed: leave it out",
        "--address" => "write --bind ADDRESS",
        "--bwlimit" | "--rate" => "write --limit RATE, as in --limit 2gbit",
        "--parallel" => "write --streams N",
        "--rsh" => "write --ssh COMMAND",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn what_is_an_option_here_is_not_said_to_be_none() {
        let mut cli = Cli::command();
        cli.build();
        let options =
            |verb| cli.find_subcommand(verb).unwrap().get_arguments().map(move |option| (verb, option));
        for (verb, option) in ["copy", "memory", "serve", "emulate", "doctor"].into_iter().flat_map(options) {
            let long = option.get_long_and_visible_aliases().into_iter().flatten();
            let short = option.get_short_and_visible_aliases().into_iter().flatten();
            let names = long.map(|name| format!("--{name}")).chain(short.map(|name| format!("-{name}")));
            for name in names {
                assert_eq!(of(&format!("farlink {verb}"), &name), None, "{name}");
            }
        }
    }
}
