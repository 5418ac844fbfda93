//! The conversation with a running emulation: one JSON line asked, one answered, over an abstract UNIX socket.
//!
//! Abstract sockets vanish with their process, so nothing is left behind. The emulation's own one takes every
//! request from its user; the one on each host tells how the connection stands and nothing else.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Target};
use crate::state::State;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// How it, or a part of it, stands: answered by a [`State`].
    Show(Option<Target>),
    /// Change a part of it: answered by a [`State`].
    Change(Target, Box<Change>),
    /// Enter a host: answered by an [`Entrance`], with the descriptors of its namespaces.
    Enter(String),
}

/// The way into a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entrance {
    /// The kinds of the namespaces, in the order of their descriptors.
    pub namespaces: Vec<String>,
    /// The emulation.
    pub state: State,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// Refused.
    Error {
        /// One line.
        error: String,
    },
    /// To [`Request::Enter`].
    Entrance(Box<Entrance>),
    /// To the others.
    State(Box<State>),
}

/// Why an emulation could not be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another has the name.
    #[error("an emulation named {name:?} is running: choose another --name, or end that one")]
    Taken {
        /// As asked.
        name: String,
    },
    /// The socket failed.
    #[error("control socket")]
    Socket(#[from] io::Error),
}

/// The socket's name of the emulation `name` of the user that `socket` stands for.
pub(crate) fn socket_name(socket: &str, name: &str) -> String {
    format!("{socket}/{name}")
}

/// Listens for the emulation `name`.
pub(crate) fn listen(socket: &str, name: &str) -> Result<UnixListener, ControlError> {
    match UnixListener::bind_addr(&SocketAddr::from_abstract_name(socket_name(socket, name))?) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(ControlError::Taken { name: name.to_owned() })
        }
        other => Ok(other?),
    }
}

/// Asks on `stream`, without descriptors.
pub(crate) fn ask(mut stream: &UnixStream, request: &Request) -> io::Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Puts the hosts' addresses in the environment of `program`: `FARLINK_A` (IPv4), `FARLINK_A6` (IPv6), ….
pub fn set_environment(program: &mut Command, state: &State) {
    program.env("FARLINK_NAME", &state.name);
    for host in &state.hosts {
        let name = host.name.to_uppercase();
        program.env(format!("FARLINK_{name}"), &host.ipv4);
        program.env(format!("FARLINK_{name}6"), &host.ipv6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_arrives_as_it_was_asked() {
        let change = Change { rtt: Some("91.6004567ms".parse().unwrap()), ..Change::default() };
        let request = Request::Change(Target::Pair("a".into(), "b".into()), Box::new(change));
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
    }

    #[test]
    fn a_change_of_what_there_is_not_is_refused() {
        let read = serde_json::from_str::<Request>("{\"change\":[\"all\",{\"warp\":\"9\"}]}");
        assert!(read.unwrap_err().to_string().contains("warp"));
    }

    #[test]
    fn requests_read_as_documented() {
        assert_eq!(serde_json::from_str::<Request>("{\"show\":null}").unwrap(), Request::Show(None));
        let part = serde_json::from_str::<Request>("{\"show\":{\"host\":\"c\"}}").unwrap();
        assert_eq!(part, Request::Show(Some(Target::Host("c".into()))));
    }
}
