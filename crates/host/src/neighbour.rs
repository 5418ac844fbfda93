//! Shared memory between the processes of one host, which is here one network namespace.
//!
//! Every process listens under a name, on an abstract unix socket: such names belong to the network namespace, and end with the process.
//! Who has something to say to another connects to its name and passes it a [ring] of memory, which it alone writes and the other
//! alone reads. The socket stays: a byte on it wakes who sleeps, and its end is that of what is said, or of the process (or of its last child
//! that inherited the socket by fork(2), where it ends without a word). Nothing of it outlives the processes, however they end: the memory has no name.
//!
//! Nobody sleeps, as a rule: [`Reader::read`] and [`Writer::room`] cost no system call. [`Neighbours::attend`] costs one, and is due now
//! and then, for new neighbours and for those that ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farlink_wire::quantity::Nanos;

use crate::clock::monotonic;
use crate::readiness::{Interest, Poller};

pub mod introduction;
mod line;
mod reader;
pub mod ring;
mod writer;

pub use introduction::Introduction;
use line::{Line, Owned};
pub use reader::Reader;
use ring::{Ring, RingError};
pub use writer::Writer;

/// A process among those of its host: what it hears, and whom it may speak to.
#[derive(Debug)]
pub struct Neighbours {
    listener: Owned,
    /// Whether who knocks is not waited for, but looked for now and then: for want of a descriptor nobody could be let in.
    is_short: bool,
    poller: Poller,
    /// Keys of what the poller knows: 0 is the listener's.
    last_key: u64,
    knocking: Vec<(u64, Line, Nanos)>,
    readers: Vec<Reader>,
    /// Until their end is heard: a line that a forked process has, too, must be taken out of the poller while it is open here.
    writers: HashMap<u64, Arc<Line>>,
    /// What [`Poller::wait`] fills.
    ready: Vec<u64>,
}

/// A neighbour that is heard no more.
#[derive(Debug)]
pub struct Ended {
    /// As it introduced itself.
    pub id: u64,
    /// What it did wrong; nothing where its process ended, or dropped its writer.
    pub broken: Option<RingError>,
}

impl Neighbours {
    /// Listens under `name`, of 100 bytes at most.
    ///
    /// # Errors
    /// The kernel's: `EADDRINUSE` where another process of this network namespace has the name.
    pub fn listen(name: &str) -> io::Result<Self> {
        let listener = Owned::new(introduction::listen(name)?);
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        Ok(Self {
            listener,
            is_short: false,
            poller,
            last_key: LISTENER,
            knocking: Vec::new(),
            readers: Vec::new(),
            writers: HashMap::new(),
            ready: Vec::new(),
        })
    }

    /// Speaks from now on to who listens under `name`, through a ring of `capacity` bytes: a power of two, [`ring::LEAST`] to
    /// [`ring::MOST`]. Records may be written at once; who does not want them ends the [`Writer`].
    ///
    /// # Errors
    /// The kernel's: `ECONNREFUSED` where nobody has the name, `EAGAIN` where too many want to speak to it at this moment, `EPERM` where
    /// it is another user's.
    pub fn connect(&mut self, name: &str, who: &Introduction, capacity: usize) -> io::Result<Writer> {
        let socket = introduction::connect(name)?;
        let (memory, ring) = Ring::create(capacity)?;
        introduction::send(&socket, who, &memory)?;
        let line = Arc::new(Line::new(socket));
        let key = self.next_key();
        self.poller.add(&*line, key, Interest::Read)?;
        self.writers.insert(key, Arc::clone(&line));
        Ok(Writer::new(ring, line))
    }

    /// Lets in those that introduced themselves, where `admits` says so, and notes who ended or wants to be heard. Never waits.
    ///
    /// # Errors
    /// The kernel's: no descriptors left, or no memory. Who could not be let in for that takes this process for ended.
    pub fn attend(&mut self, admits: &mut dyn FnMut(&Introduction) -> bool) -> io::Result<()> {
        // One that was dropped by another process than made it, by fork(2), has not ended its line.
        let poller = &self.poller;
        self.writers.retain(|_, line| {
            let is_used = Arc::strong_count(line) > 1;
            if !is_used {
                // It may be forgotten already.
                let _ = poller.remove(&**line);
            }
            is_used
        });
        let mut ready = std::mem::take(&mut self.ready);
        let mut attended = self.poller.wait(Nanos::ZERO, &mut ready);
        if self.is_short {
            attended = attended.and(self.answer());
        }
        for &key in &ready {
            if key == LISTENER {
                attended = attended.and(self.answer());
            } else if let Some(line) = self.writers.get(&key) {
                if self.hear(line) {
                    self.writers.remove(&key);
                }
            } else if let Some(at) = self.readers.iter().position(|reader| reader.key() == key) {
                self.hear(self.readers[at].line());
            }
        }
        // Those that have just been answered have mostly said who they are already.
        attended = attended.and(self.introduce(admits));
        self.ready = ready;
        attended
    }

    /// Those that may be heard.
    pub fn readers(&mut self) -> &mut [Reader] {
        &mut self.readers
    }

    /// Forgets a neighbour whose process ended, once all that it said was read, and says which.
    pub fn ended(&mut self) -> Option<Ended> {
        let at = self.readers.iter_mut().position(Reader::is_over)?;
        let mut reader = self.readers.swap_remove(at);
        self.forget(reader.line());
        Some(Ended { id: reader.id(), broken: reader.take_error() })
    }

    /// Hears a neighbour no more: to it, it is as if this process had ended.
    pub fn dismiss(&mut self, id: u64) {
        self.readers.iter().filter(|reader| reader.id() == id).for_each(|reader| self.forget(reader.line()));
        self.readers.retain(|reader| reader.id() != id);
    }

    /// Listens to a line no more. Closing it is not enough: where the process forked, its child has it, too.
    fn forget(&self, line: &Line) {
        // It may be forgotten already.
        let _ = self.poller.remove(line);
    }

    /// Asks every neighbour to wake this process when it says something; false where one has already, or one ended, so that sleeping is not
    /// due. Then wait until this can be read (it may be at once), and call [`woken`](Self::woken) and [`attend`](Self::attend).
    #[must_use]
    pub fn prepare_sleep(&mut self) -> bool {
        let mut quiet = true;
        for reader in &mut self.readers {
            quiet &= reader.prepare_sleep();
        }
        if !quiet {
            self.woken();
        }
        quiet
    }

    /// Asks nobody to be woken any longer.
    pub fn woken(&mut self) {
        for reader in &mut self.readers {
            reader.woken();
        }
    }

    /// Takes what a line says; true where it is over.
    fn hear(&self, line: &Line) -> bool {
        let over = !line.hear();
        if over {
            // Its end would be told again and again.
            self.forget(line);
        }
        over
    }

    /// Takes those that knock. One that cannot be taken goes on knocking, which would wake whoever waits for the poller again and again.
    fn answer(&mut self) -> io::Result<()> {
        let taken = self.take();
        let is_short =
            taken.as_ref().is_err_and(introduction::is_shortage) || self.knocking.len() >= MOST_KNOCKING;
        if is_short && !self.is_short {
            self.poller.remove(&self.listener)?;
        } else if self.is_short && !is_short {
            self.poller.add(&self.listener, LISTENER, Interest::Read)?;
        }
        self.is_short = is_short;
        taken
    }

    fn take(&mut self) -> io::Result<()> {
        while self.knocking.len() < MOST_KNOCKING {
            let Some(socket) = introduction::accept(&self.listener)? else { return Ok(()) };
            let (key, line) = (self.next_key(), Line::new(socket));
            self.poller.add(&line, key, Interest::Read)?;
            self.knocking.push((key, line, monotonic()));
        }
        Ok(())
    }

    fn introduce(&mut self, admits: &mut dyn FnMut(&Introduction) -> bool) -> io::Result<()> {
        let (mut at, mut introduced) = (0, Ok(()));
        while let Some((_, line, _)) = self.knocking.get(at) {
            let came = match introduction::receive(line) {
                Ok(None) => {
                    at += 1;
                    continue;
                }
                Ok(Some(came)) => Some(came),
                Err(error) => {
                    introduced = introduced.and(of_this_process(error));
                    None
                }
            };
            let (key, line, _) = self.knocking.remove(at);
            match came.filter(|(who, _)| admits(who)).map(|(who, memory)| (who, Ring::adopt(memory))) {
                Some((who, Ok(ring))) => {
                    self.readers.push(Reader::new(ring, line, key, who.id));
                    continue;
                }
                Some((_, Err(RingError::System(error)))) => {
                    introduced = introduced.and(of_this_process(error));
                }
                None | Some((_, Err(_))) => {}
            }
            self.forget(&line);
        }
        let oldest = self.knocking.first().map_or(Nanos::MAX, |(_, _, since)| *since);
        if self.knocking.len() == MOST_KNOCKING && oldest.after(AT_ONCE) <= monotonic() {
            // It stands there to keep others out.
            let (_, line, _) = self.knocking.remove(0);
            self.forget(&line);
        }
        introduced
    }

    const fn next_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }
}

/// An error of an introduction that is this process's own; otherwise the other one ended, or what it said is none.
fn of_this_process(error: io::Error) -> io::Result<()> {
    if introduction::is_shortage(&error) { Err(error) } else { Ok(()) }
}

impl AsFd for Neighbours {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

const LISTENER: u64 = 0;

/// Connections that have not said who they are. Others wait until they have.
const MOST_KNOCKING: usize = 256;

/// Within what neighbours say so, where many processes have few processors.
const AT_ONCE: Nanos = Nanos(1_000_000_000);

#[cfg(test)]
mod tests;
