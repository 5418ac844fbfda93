//! Who answers what is asked of an emulation.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use farlink_host::abstract_socket::peer_user;
use farlink_host::{namespace, rights};

use super::{Asker, Inner};
use crate::change::Target;
use crate::control::{Answer, Entrance, Request};

/// Answers on the emulation's own socket and on its hosts', until the process ends.
pub(super) fn serve(inner: &Arc<Inner>, own: UnixListener, hosts: Vec<UnixListener>) -> io::Result<()> {
    let hosts = hosts.into_iter().enumerate().map(|(place, listener)| (listener, Some(place)));
    for (listener, host) in std::iter::once((own, None)).chain(hosts) {
        let inner = inner.clone();
        std::thread::Builder::new().name("control".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let (its, asked) = (inner.clone(), stream.try_clone());
                // One that asks slowly keeps nobody else waiting, but where there is no thread for it.
                let begun = asked.and_then(|stream| {
                    std::thread::Builder::new().spawn(move || answer(&its, &stream, host))
                });
                if begun.is_err() {
                    answer(&inner, &stream, host);
                }
            }
        })?;
    }
    Ok(())
}

/// Answers one request, on the socket of the host at place `host` or, where that is none, the emulation's own.
fn answer(inner: &Inner, stream: &UnixStream, host: Option<usize>) {
    let heard = hear(stream);
    let error = |error: String| (Answer::Error { error }, None);
    let peer = peer_user(stream).unwrap_or(u32::MAX);
    let (answer, entered) = match heard {
        Err(reason) => error(format!("request not understood: {reason}")),
        Ok(Request::Show(part)) => {
            let part = part.unwrap_or(Target::All);
            match inner.check_target(&part) {
                Ok(()) => {
                    let asker = host.map_or(Asker::Owner(&part), Asker::Host);
                    (Answer::State(Box::new(inner.state(&asker))), None)
                }
                Err(reason) => error(reason.to_string()),
            }
        }
        Ok(_) if host.is_some() => error("a host can only ask how its connection stands".to_owned()),
        Ok(_) if peer != namespace::user() && peer != 0 => {
            error("the emulation is another user's".to_owned())
        }
        Ok(Request::Change(target, change)) => match inner.change(&target, &change) {
            Ok(()) => (Answer::State(Box::new(inner.state(&Asker::Owner(&target)))), None),
            Err(reason) => error(reason.to_string()),
        },
        Ok(Request::Enter(host)) => match inner.host(&host) {
            Ok(index) => {
                let namespaces = inner.namespaces(index);
                let names = namespaces.named().map(|(name, _)| name.to_owned()).collect();
                let state = inner.state(&Asker::Owner(&Target::All));
                let entrance = Entrance { namespaces: names, state };
                (Answer::Entrance(Box::new(entrance)), Some(namespaces))
            }
            Err(reason) => error(reason.to_string()),
        },
    };
    let mut line = serde_json::to_vec(&answer).unwrap_or_default();
    line.push(b'\n');
    // Who asked and left needs no answer.
    let descriptors: Vec<_> = entered.into_iter().flat_map(|n| n.named().map(|(_, fd)| fd)).collect();
    let _ = rights::send(stream, &line, &descriptors);
}

/// The request on `stream`.
fn hear(stream: &UnixStream) -> Result<Request, String> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut line = String::new();
    let read = BufReader::new(stream.take(MOST_REQUEST)).read_line(&mut line);
    read.map_err(|error| error.to_string())?;
    serde_json::from_str(&line).map_err(|error| error.to_string())
}

/// Bytes of a request.
const MOST_REQUEST: u64 = 64 << 10;

/// How long who connected may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);
