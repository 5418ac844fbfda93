//! This program, for a host that has none.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_wire::quantity::{Bytes, Nanos};

use super::command::Ssh;

/// A program that may be sent. Its name there says which it is: another build has another.
#[derive(Clone, Debug)]
pub(super) struct Shipment {
    program: PathBuf,
    size: Bytes,
    name: String,
}

impl Shipment {
    /// The one that runs.
    pub(super) fn of_this_program() -> Result<Self, ShipError> {
        Self::of(Path::new("/proc/self/exe"))
    }

    pub(super) fn of(program: &Path) -> Result<Self, ShipError> {
        let read = |source| ShipError::Read { program: program.to_owned(), source };
        let metadata = std::fs::metadata(program).map_err(read)?;
        // Not its whole content, which takes as long as a round trip: a build has its time.
        let made = metadata.modified().map_err(read)?.duration_since(std::time::UNIX_EPOCH);
        let mark = format!("{}-{}", metadata.len(), made.unwrap_or_default().as_nanos());
        let mark = blake3::hash(mark.as_bytes()).to_hex();
        let name = format!("farlink-{}-{}", env!("CARGO_PKG_VERSION"), &mark[..8]);
        Ok(Self { program: program.to_owned(), size: Bytes(metadata.len()), name })
    }

    pub(super) const fn size(&self) -> Bytes {
        self.size
    }

    /// What runs the far end there, with `options`: the one that is installed, or this one where it was sent before. Exit code
    /// 127 where there is neither. For any login shell: only `sh` reads it.
    pub(super) fn far_end(&self, options: &str) -> String {
        let options = format!("far-end {options}");
        let options = options.trim_end();
        let name = &self.name;
        format!(
            "exec sh -c 'if command -v farlink >/dev/null 2>&1; then exec farlink {options}; fi; \
             p=\"$HOME/.cache/farlink/{name}\"; if [ -x \"$p\" ]; then exec \"$p\" {options}; fi; exit 127'"
        )
    }

    /// Sends it, where the host is of the same kind; false where `stop` was raised first.
    pub(super) fn send(&self, ssh: &Ssh, stop: &Wake) -> Result<bool, ShipError> {
        let run = |command: &mut Command| run(command, stop).map_err(ShipError::Ssh);
        let Some((said, _)) = run(ssh.command("uname -sm").stdin(Stdio::null()))? else { return Ok(false) };
        // A login shell may print more before it, and end no line.
        let there = String::from_utf8_lossy(&said).trim().lines().last().unwrap_or_default().to_owned();
        let here = farlink_host::process::kind_of_host();
        if !there.ends_with(&here) {
            return Err(ShipError::OtherKind { there, here });
        }
        let program = File::open(&self.program)
            .map_err(|source| ShipError::Read { program: self.program.clone(), source })?;
        let (name, size) = (&self.name, self.size.0);
        // Whole under its name, or not at all, also where the connection ends; two that send at once do not meet.
        let receive = format!(
            "exec sh -c 'umask 077; d=\"$HOME/.cache/farlink\"; t=\"$d/.{name}.$$\"; mkdir -p \"$d\" && cat >\"$t\" && \
             [ \"$(wc -c <\"$t\")\" -eq {size} ] && chmod 700 \"$t\" && mv \"$t\" \"$d/{name}\" || {{ rm -f \"$t\"; exit 1; }}'"
        );
        match run(ssh.command(&receive).stdin(program))? {
            None => Ok(false),
            Some((_, status)) if status.success() => Ok(true),
            Some((_, status)) => Err(ShipError::Refused { code: status.code().unwrap_or(-1) }),
        }
    }
}

/// What `command` prints, the first of it, and how it ends; `None`, and it is ended, where `stop` was raised first.
fn run(command: &mut Command, stop: &Wake) -> io::Result<Option<(Vec<u8>, ExitStatus)>> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    let mut stopped = false;
    if let Some(mut stdout) = child.stdout.take() {
        loop {
            match wait_for(stdout.as_fd(), Interest::Read, stop, Nanos::MAX)? {
                Waited::Stopped => stopped = true,
                Waited::Over => continue,
                Waited::Ready => match stdout.read(&mut chunk) {
                    Ok(0) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                    Ok(read) => {
                        said.extend(&chunk[..read.min(MOST_SAID.saturating_sub(said.len()))]);
                        continue;
                    }
                },
            }
            break;
        }
    }
    if stopped {
        child.kill()?;
    }
    let status = child.wait()?;
    // Ctrl-C reaches ssh, too, and that may be heard of first.
    Ok((!stopped && !stop.is_raised()).then_some((said, status)))
}

/// Bytes of what a command prints that are kept.
const MOST_SAID: usize = 64 << 10;

/// Why a program could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// It cannot be read here.
    #[error("read {}", program.display())]
    Read {
        /// Which.
        program: PathBuf,
        /// The kernel's own words.
        source: io::Error,
    },
    /// It would not run there.
    #[error("it is {there:?}, this is {here:?}: install farlink there")]
    OtherKind {
        /// What `uname -sm` says there.
        there: String,
        /// And here.
        here: String,
    },
    /// ssh could not be started.
    #[error("start ssh")]
    Ssh(#[source] io::Error),
    /// It did not arrive.
    #[error(
        "it could not be written there (exit code {code}): install farlink there, or make room in ~/.cache"
    )]
    Refused {
        /// What the shell there said.
        code: i32,
    },
}
