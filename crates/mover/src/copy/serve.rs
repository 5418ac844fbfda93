//! The server's part of a file transfer.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;

use farlink_host::beneath::Directory;
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_wire::message::copy::{Accept, Account, Copy, MOST_SOURCES, Protect, Request};
use farlink_wire::message::{Arrival, Message, Way};

use super::allowed::{Allowed, Reached};
use super::conversation::{Party, Talk, talk};
use super::end::End;
use super::filter::Filter;
use super::lost::Lost;
use super::manner::Manner;
use super::receiving::{self, Receiving};
use super::sender_account::sender_account;
use super::sending::Sending;
use super::source::SourcePath;
use super::supply;
use super::target::{Destination, Stays, Target, TargetOptions};
use super::telling::{self, Tour};
use super::{CopyError, judging};
use crate::budget::Budget;
use crate::channel::Channel;
use crate::control::Control;
use crate::facts;
use crate::tuning::TuneError;

/// What was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Bytes that arrived, at whichever end.
    pub(crate) bytes: u64,
    /// Names that failed, as far as this end knows.
    pub(crate) failed: u64,
    /// It was stopped here.
    pub(crate) interrupted: bool,
}

/// Serves one transfer: what `request` asks for, over `control` and the connections that come by `streams`, until `dismiss` has no more
/// come. What of it is not foreseen is taken of `budget`.
pub(crate) fn serve(
    control: &mut Control,
    request: &Request,
    streams: impl Arrivals,
    dismiss: impl FnOnce(),
    allowed: &Allowed,
    budget: &Budget,
    stops: &[&Wake],
) -> Result<Served, CopyError> {
    if request.dry_run {
        // Nothing is moved: connections that come all the same are nobody's.
        dismiss();
        drop(streams);
        foretell(control, request, allowed, stops)?;
        let interrupted = stops.iter().any(|stop| stop.is_raised());
        return Ok(Served { interrupted, ..Served::default() });
    }
    let wake = Wake::new().map_err(CopyError::wait)?;
    let seal = match request.protect {
        Protect::Integrity if !request.verify => return Err(CopyError::Unverified),
        Protect::Integrity => Some(request.secret.ok_or(CopyError::Unprotected)?.0.0),
        _ => None,
    };
    let end = match request.way {
        Way::Forward => receiving_end(request, allowed, seal, &wake, budget)?,
        Way::Reverse => sending_end(request, allowed, seal, (&wake, control), budget)?,
    };
    control.send(&Message::Copy(Copy::Accept(Accept { host: facts::host() })))?;
    thread::scope(|scope| {
        let end = &end;
        // Those that broke may not be known to have when others come in their place.
        let most = 2 * usize::from(request.streams.get());
        scope.spawn(move || join(end, streams, most));
        let mut party = Server { end };
        let talked = talk(control, end, &wake, stops, request.patience.get(), &mut party, VecDeque::new());
        dismiss();
        end.abort();
        end.wait();
        let Talk { finished, interrupted, .. } = talked?;
        let bytes = finished.map_or(0, |finished| finished.bytes);
        Ok(Served { bytes, failed: end.tally().failed, interrupted })
    })
}

/// Hands the connections that come to `end`, no more than `most` at a time.
fn join(end: &End, mut streams: impl Arrivals, most: usize) {
    let mut seen = HashSet::new();
    loop {
        match streams.next() {
            // A number that was used would let frames that were sent on it be sent again; and each connection has a thread.
            Ok((number, _))
                if seen.len() >= MOST_STREAMS || end.streams() >= most || !seen.insert(number) => {}
            Ok((number, channel)) => {
                // One that broke meanwhile, or that there is no thread for: the client finds it closed, and opens another.
                let _ = end.join(number, channel);
            }
            Err(Gone::Over) => return,
            Err(Gone::Untuned(source)) => {
                // The client would only open another.
                end.fail(CopyError::Tune { host: process::host_name(), source });
                return;
            }
        }
    }
}

/// Data connections of one session, as they come.
pub(crate) trait Arrivals: Send {
    /// The next, waited for as long as there may be one.
    fn next(&mut self) -> Result<(u32, Channel), Gone>;
}

/// Why no more come.
#[derive(Debug)]
pub(crate) enum Gone {
    /// The session ends.
    Over,
    /// One came that does not get here what was asked for.
    Untuned(TuneError),
}

impl Arrivals for Receiver<(u32, Channel)> {
    fn next(&mut self) -> Result<(u32, Channel), Gone> {
        self.recv().map_err(|_| Gone::Over)
    }
}

/// Tells what would be sent, or what would become of what would come.
fn foretell(
    control: &mut Control,
    request: &Request,
    allowed: &Allowed,
    stops: &[&Wake],
) -> Result<(), CopyError> {
    let patience = request.patience.get();
    let accept = Message::Copy(Copy::Accept(Accept { host: facts::host() }));
    match request.way {
        Way::Reverse => {
            let (sources, filter) = sources(request, allowed)?;
            control.send(&accept)?;
            let Request { length, update, .. } = *request;
            let tour = Tour { sources: &sources, filter: &filter, length, update };
            telling::tell(control, tour, patience, stops)
        }
        Way::Forward => {
            let Reached { base, beneath, granted } = destination(request, allowed)?;
            let options = TargetOptions {
                stays: Stays::of(request.update, request.resume),
                ..TargetOptions::default()
            };
            // Nothing is made there.
            let destination = Destination { path: beneath, several: request.several, above: granted };
            let target = Target::foreseeing(&base, &destination, request.key.0, options)?;
            control.send(&accept)?;
            judging::answer(control, target.as_ref(), patience, stops)
        }
    }
}

/// Where files go.
fn destination(request: &Request, allowed: &Allowed) -> Result<Reached, CopyError> {
    let destination = request.destination.as_ref();
    let destination = destination.ok_or(CopyError::OutOfPlace { what: "a request without a destination" })?;
    allowed.to_write(destination)
}

fn receiving_end(
    request: &Request,
    allowed: &Allowed,
    seal: Option<[u8; 32]>,
    wake: &Wake,
    budget: &Budget,
) -> Result<End, CopyError> {
    let Reached { base, beneath, granted } = destination(request, allowed)?;
    // Whoever the server runs as must not lend its name to a program that a client brings.
    let mode_mask = if allowed.is_everything() { 0o7777 } else { 0o1777 };
    let Request { fsync, read_back, update, .. } = *request;
    let (is_again, stays) = (request.asks_first(), Stays::of(update, request.resume));
    // What is granted is others', too, and its mode the host's own choice.
    let granted_itself = || base.own_status().ok().map(|status| (status.device, status.inode));
    let kept = if allowed.is_everything() { None } else { granted_itself() };
    let options =
        TargetOptions { fsync, read_back, mode_mask, is_again, stays, kept, ..TargetOptions::default() };
    let destination = Destination { path: beneath, several: request.several, above: granted };
    let sink = base.open_sink(&destination.path).ok();
    let target = Target::open(&base, &destination, request.key.0, options)?;
    let interval = request.interval.get();
    let manner = receiving::Manner {
        target,
        sink,
        resume: request.asks_first(),
        verify: request.verify,
        seal,
        report: false,
        interval,
        patience: request.patience.get(),
        lingers: !allowed.is_of_this_process(),
        budget: budget.clone(),
    };
    Ok(End::Receiver(Receiving::new(manner, wake.clone(), Wake::new().map_err(CopyError::wait)?)))
}

fn sources(request: &Request, allowed: &Allowed) -> Result<(Sources, Filter), CopyError> {
    if request.sources.is_empty() || request.sources.len() > MOST_SOURCES {
        return Err(CopyError::OutOfPlace { what: "a request without sources, or with more than 1000" });
    }
    let filter = Filter::new(&request.rules)?.only(request.names.as_deref())?;
    let mut sources = Vec::new();
    for source in &request.sources {
        let Reached { base, beneath, .. } = allowed.to_read(source)?;
        // Names that are listed, and a device's content, are beneath what is called so.
        let is_named = request.names.is_some() || request.length.is_some();
        sources
            .push((base, if is_named { SourcePath::new(beneath)? } else { SourcePath::pattern(beneath)? }));
    }
    Ok((sources, filter))
}

fn sending_end(
    request: &Request,
    allowed: &Allowed,
    seal: Option<[u8; 32]>,
    (wake, control): (&Wake, &Control),
    budget: &Budget,
) -> Result<End, CopyError> {
    let (sources, filter) = sources(request, allowed)?;
    let manner = Manner::of(request, seal, false, control, budget.clone());
    let sending =
        Sending::new(manner, wake.clone(), Wake::new().map_err(CopyError::wait)?).map_err(CopyError::wait)?;
    supply::start(&sending, sources, filter, request.length)
        .map_err(|source| CopyError::System { attempt: "start a thread", source })?;
    Ok(End::Sender(sending))
}

/// Sources, each with what it is beneath.
type Sources = Vec<(Arc<Directory>, SourcePath)>;

/// Data connections of one session, those that took the place of others included: twice the most that a request may ask for.
const MOST_STREAMS: usize = 1024;

struct Server<'a> {
    end: &'a End,
}

impl Party for Server<'_> {
    fn observe(&mut self, _end: &End, _arrivals: &[Arrival]) {}

    fn replace(&mut self, _end: &End, _lost: Vec<Lost>) -> Result<(), CopyError> {
        // The client opens another, which comes by the door as the first did.
        Ok(())
    }

    fn account(&mut self) -> Account {
        sender_account(self.end)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    fn receiver() -> End {
        let root = Arc::new(Directory::open(Path::new("/")).unwrap());
        let destination = Destination { path: b"/dev/null".to_vec(), several: false, above: Vec::new() };
        let target = Target::open(&root, &destination, [0; 16], TargetOptions::default()).unwrap();
        let manner = receiving::Manner {
            target,
            sink: root.open_sink(b"/dev/null").ok(),
            resume: false,
            verify: true,
            seal: None,
            report: false,
            interval: farlink_wire::quantity::Nanos(100_000_000),
            patience: farlink_wire::quantity::Nanos::ZERO,
            lingers: true,
            budget: Budget::unbounded(),
        };
        End::Receiver(Receiving::new(manner, Wake::new().unwrap(), Wake::new().unwrap()))
    }

    #[test]
    fn the_kernel_asks_whether_a_silent_sender_is_still_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = |address: std::net::SocketAddr| format!(":{:04X}", address.port());
        let (ours, theirs) = (port(near.local_addr().unwrap()), port(listener.local_addr().unwrap()));
        let end = receiver();
        end.join(0, Channel::over_tcp(near).unwrap()).unwrap();
        // Of proc_net_tcp(5), the second, third and sixth column: 2 is the timer of keepalive.
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let timers: Vec<_> = rows
            .filter(|row| row[1].ends_with(&ours) && row[2].ends_with(&theirs))
            .map(|row| row[5].starts_with("02:"))
            .collect();
        assert_eq!(timers, [true]);
        end.abort();
        end.wait();
    }

    #[test]
    fn a_connection_whose_number_was_used_or_that_is_one_too_many_is_no_part_of_the_session() {
        let end = receiver();
        let (streams, incoming) = channel();
        let mut peers = Vec::new();
        for number in [0, 0, 1, 2] {
            let (near, far) = UnixStream::pair().unwrap();
            streams.send((number, Channel::over_unix(far).unwrap())).unwrap();
            peers.push(near);
        }
        drop(streams);
        join(&end, incoming, 2);
        // And the last is one too many.
        for closed in [1, 3] {
            peers[closed].set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(peers[closed].read(&mut [0]).unwrap(), 0, "connection {closed} is closed");
        }
        for live in [0, 2] {
            peers[live].set_nonblocking(true).unwrap();
            assert!(peers[live].read(&mut [0]).is_err(), "connection {live} is open");
        }
        end.abort();
        end.wait();
    }
}
