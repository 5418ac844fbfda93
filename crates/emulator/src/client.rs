//! Speaking with a running emulation from another process.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use farlink_host::abstract_socket::connect_to_own;
use farlink_host::namespace::Namespaces;
use farlink_host::rights;

use crate::change::{Change, Target};
use crate::control::{self, Answer, Request};
use crate::hosts::SOCKET;
use crate::state::State;

/// A running emulation.
#[derive(Debug)]
pub struct Client {
    /// Of its socket.
    name: String,
}

/// Why a running emulation did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is none of that name.
    #[error("no emulation named {name:?} is running{}", others(running))]
    NotRunning {
        /// As asked.
        name: String,
        /// Those that are.
        running: Vec<String>,
    },
    /// This is no emulated host.
    #[error("this is no emulated host: name the emulation, as in `farlink link wan`")]
    NotAHost,
    /// Whoever has its name is neither this user nor root: what they say is not believed, and nothing is run where they lead.
    #[error("what answers as emulation {name:?} is another user's: end it, or choose another --name")]
    Strange {
        /// As asked.
        name: String,
    },
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// It ended meanwhile, or spoke another version.
    #[error("the emulation's answer was not understood: it ended, or is another version's")]
    Answer,
    /// The socket failed.
    #[error("control socket")]
    Socket(#[from] io::Error),
}

impl Client {
    /// The emulation `name` of the user that `socket` stands for.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`] with those that are; [`ClientError::Strange`].
    pub fn named(socket: &str, name: &str) -> Result<Self, ClientError> {
        let client = Self { name: control::socket_name(socket, name) };
        match client.connect() {
            Ok(_) => Ok(client),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(ClientError::Strange { name: name.to_owned() })
            }
            Err(_) => Err(ClientError::NotRunning { name: name.to_owned(), running: running(socket) }),
        }
    }

    /// The emulation on one of whose hosts this process is.
    ///
    /// # Errors
    /// [`ClientError::NotAHost`].
    pub fn here() -> Result<Self, ClientError> {
        let client = Self { name: SOCKET.to_owned() };
        client.connect().map_err(|_| ClientError::NotAHost)?;
        Ok(client)
    }

    /// How a part of it stands.
    ///
    /// # Errors
    /// [`ClientError::Refused`] where there is no such part.
    pub fn show(&self, part: Target) -> Result<State, ClientError> {
        self.state(&Request::Show(Some(part)))
    }

    /// Changes a part of it, and says how it stands then.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with its one line.
    pub fn change(&self, target: Target, change: Change) -> Result<State, ClientError> {
        self.state(&Request::Change(target, Box::new(change)))
    }

    /// The namespaces of `host`, and how the emulation stands.
    ///
    /// # Errors
    /// [`ClientError::Refused`] where there is no such host.
    pub fn enter(&self, host: &str) -> Result<(Namespaces, State), ClientError> {
        let (answer, descriptors) = self.ask(&Request::Enter(host.to_owned()))?;
        let Answer::Entrance(entrance) = answer else { return Err(ClientError::Answer) };
        if entrance.namespaces.len() != descriptors.len() {
            return Err(ClientError::Answer);
        }
        let named = entrance.namespaces.into_iter().zip(descriptors).collect();
        Ok((Namespaces::from_named(named).ok_or(ClientError::Answer)?, entrance.state))
    }

    fn state(&self, request: &Request) -> Result<State, ClientError> {
        match self.ask(request)? {
            (Answer::State(state), _) => Ok(*state),
            _ => Err(ClientError::Answer),
        }
    }

    fn ask(&self, request: &Request) -> Result<(Answer, Vec<std::os::fd::OwnedFd>), ClientError> {
        let stream = self.connect()?;
        control::ask(&stream, request)?;
        let (line, descriptors) = rights::receive(&stream)?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Error { error }) => Err(ClientError::Refused(error)),
            Ok(answer) => Ok((answer, descriptors)),
            Err(_) => Err(ClientError::Answer),
        }
    }

    fn connect(&self) -> io::Result<UnixStream> {
        connect_to_own(&self.name)
    }
}

/// The emulations that run, of the user that `socket` stands for (unix(7): abstract names are shown with `@`).
#[must_use]
pub fn running(socket: &str) -> Vec<String> {
    let listed = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let prefix = format!("@{socket}/");
    let mut names: Vec<_> =
        listed.lines().filter_map(|line| Some(line.split_once(&prefix)?.1.trim().to_owned())).collect();
    names.sort();
    names.dedup();
    names
}

fn others(running: &[String]) -> String {
    match running {
        // Names are of a network, as the sockets are that have them.
        [] if Client::here().is_ok() => {
            ": this is an emulated host, from which none is seen: say that outside of it".to_owned()
        }
        [] => ": start one with `farlink emulate --name NAME`".to_owned(),
        names => format!(": running are {}", names.join(", ")),
    }
}
