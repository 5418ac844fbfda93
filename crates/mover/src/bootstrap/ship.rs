//! This program, for a host that has none.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use farlink_wire::quantity::Bytes;

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

    /// Sends it, where the host is of the same kind.
    pub(super) fn send(&self, ssh: &Ssh) -> Result<(), ShipError> {
        let run = |command: &mut std::process::Command| command.output().map_err(ShipError::Ssh);
        let there = run(ssh.command("uname -sm").stdin(Stdio::null()))?;
        let there = String::from_utf8_lossy(&there.stdout).trim().to_owned();
        let here = farlink_host::process::kind_of_host();
        if there != here {
            return Err(ShipError::OtherKind { there, here });
        }
        let program = File::open(&self.program)
            .map_err(|source| ShipError::Read { program: self.program.clone(), source })?;
        let name = &self.name;
        // Whole under its name, or not at all; two that send at once do not meet.
        let receive = format!(
            "exec sh -c 'umask 077; d=\"$HOME/.cache/farlink\"; t=\"$d/.{name}.$$\"; mkdir -p \"$d\" && cat >\"$t\" && \
             chmod 700 \"$t\" && mv \"$t\" \"$d/{name}\" || {{ rm -f \"$t\"; exit 1; }}'"
        );
        match run(ssh.command(&receive).stdin(program))?.status.code() {
            Some(0) => Ok(()),
            code => Err(ShipError::Refused { code: code.unwrap_or(-1) }),
        }
    }
}

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
