//! One data connection of a sender: takes what is to do, reads it, hashes it, and sends it.

use std::collections::HashSet;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

use farlink_flow::digest::{self, BlockHasher};
use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, wait_for};
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::entry::{Digest, Entry, Kind};
use farlink_wire::frame::{Block, Holes, Pack, What, encode_end};
use farlink_wire::message::copy::Lack;
use farlink_wire::quantity::Nanos;

use super::file_event::Became;
use super::lost::Lost;
use super::outgoing::{Outgoing, Planned};
use super::seal::Seal;
use super::sending::{Job, Sending};
use super::socket_facts::SocketFacts;
use super::source::{Handle, SourceFile};
use super::supply::lack;
use super::timing::Stage;
use super::worker;
use crate::automatic::{self, Start};
use crate::channel::{Channel, Wait};
use crate::tuning::{OFTEN, steady, widen};

/// A data connection of the sending end.
pub(crate) struct StreamOut {
    sending: Arc<Sending>,
    number: u32,
    channel: Channel,
    seal: Option<Seal>,
    /// Files that were said here, and of these those whose holes were. The receiver forgets the former when this end does: by their number.
    said: HashSet<u32>,
    emptied: HashSet<u32>,
    buffer: Vec<u8>,
    /// When it was last looked at what TCP says.
    looked: Nanos,
    /// Whether it takes no more than leaves at once.
    is_narrow: bool,
}

impl StreamOut {
    /// Sends in a thread of its own until everything is done or the connection breaks.
    pub(crate) fn start(sending: &Arc<Sending>, number: u32, channel: Channel) -> io::Result<()> {
        let seal = sending.manner.seal.map(|secret| Seal::new(&secret, number));
        let mut channel = channel;
        channel.set_wait(Some(Wait { patience: STALL, stop: sending.halt.clone(), while_full: true }));
        let (mut reason, mut is_narrow) = (None, false);
        if let Some(tcp) = channel.tcp() {
            steady(tcp, sending.manner.may_pace)?;
            is_narrow = sending.manner.circuit.is_none();
            if is_narrow {
                socket::set_unsent_limit(tcp, NARROW)?;
            }
            if sending.manner.automatic {
                reason = Some(automatic::choose(std::slice::from_ref(tcp), sending.manner.is_buffer_fixed)?);
            } else if sending.manner.follows_path {
                reason = match Start::of(tcp, sending.manner.least_rtt)? {
                    Start::Settled(reason) => reason,
                    Start::Together(reason) => {
                        sending.steering.join(number, tcp)?;
                        reason
                    }
                };
            }
        }
        let tcp = channel.tcp().map(TcpStream::try_clone).transpose()?;
        sending.on_stream(number, SocketFacts { reason, ..SocketFacts::of(channel.tcp()) }, tcp);
        let sending = Arc::clone(sending);
        let mut stream = Self {
            sending,
            number,
            channel,
            seal,
            said: HashSet::new(),
            emptied: HashSet::new(),
            buffer: Vec::new(),
            looked: Nanos::ZERO,
            is_narrow,
        };
        let shared = Arc::clone(&stream.sending);
        worker::start(&shared, "farlink-send", move || stream.run())
            .inspect_err(|error| shared.on_lost(Lost::new(number, error)))
    }

    fn run(&mut self) {
        if let Err(error) = self.work() {
            self.sending.on_lost(Lost::new(self.number, &error));
        }
    }

    fn work(&mut self) -> io::Result<()> {
        self.await_window();
        while let Some(job) = self.sending.next_task(self.number) {
            // The receiver hears of no file that nothing can be sent of: very many of these may follow on each other.
            if let Some(file) = job.file()
                && let Err(what) = self.sending.timing.during(Stage::Disk, || file.open())
            {
                self.sending.abandon(file, what);
                continue;
            }
            match job {
                Job::Announce(file) => self.say(&file, false)?,
                Job::Empty(file) => self.say(&file, true)?,
                Job::Block { file, index, proven } => {
                    let same = proven.is_some_and(|theirs| self.is_same(&file, index, theirs));
                    if same {
                        if let Err(what) = file.check() {
                            self.sending.abandon(&file, what);
                            continue;
                        }
                        self.say(&file, true)?;
                        self.sending.on_same(&file, index);
                    } else {
                        self.say(&file, true)?;
                        self.send_block(&file, index)?;
                    }
                }
                Job::Pack { number, planned } => self.send_pack(number, &planned)?,
            }
            self.await_window();
        }
        let mut end = Vec::new();
        encode_end(&mut end);
        self.write_frame(&mut end)?;
        self.channel.flush()
    }

    /// While nothing of it has arrived: waits until what it has taken has left, so that what is beyond its first window goes to other connections'.
    fn await_window(&mut self) {
        let Some(tcp) = self.channel.tcp().filter(|_| self.is_narrow) else { return };
        // Where it has broken, or takes nothing for long, writing says so.
        let _ = wait_for(tcp, Interest::Write, &self.sending.halt, FIRST_ROUND);
        if TcpInfo::of(tcp).is_ok_and(|info| info.acknowledged > NARROW.into()) {
            self.is_narrow = widen(tcp).is_err();
        }
    }

    /// Says what file this is, where that was not said here. What only asks says nothing of holes.
    fn say(&mut self, file: &Outgoing, holes: bool) -> io::Result<()> {
        let number = file.frame.file;
        if !self.said.contains(&number) {
            let mut frame = Vec::new();
            file.frame.encode(&mut frame);
            self.write_frame(&mut frame)?;
            self.forget_some();
            self.said.insert(number);
        }
        if holes && !file.holes.is_empty() && self.emptied.insert(number) {
            file.on_sent();
            for runs in file.holes.chunks(Holes::MOST) {
                let mut frame = Vec::new();
                Holes { file: number, runs: runs.to_vec() }.encode(&mut frame);
                self.write_frame(&mut frame)?;
            }
        }
        Ok(())
    }

    /// What was said of many files ago may be said again.
    fn forget_some(&mut self) {
        if self.said.len() > MOST_SAID {
            self.said.clear();
            self.emptied.clear();
        }
    }

    /// Whether the receiver's block is ours.
    fn is_same(&mut self, file: &Outgoing, index: u32, theirs: Digest) -> bool {
        let length = file.block_length(index);
        let (bytes, size) = (file.block_bytes(), file.frame.size());
        let mut hasher = BlockHasher::new(size, bytes, index);
        let mut at = 0;
        self.buffer.resize(PIECE, 0);
        while at < length {
            let count = (length - at).min(PIECE as u64) as usize;
            let piece = &mut self.buffer[..count];
            let offset = u64::from(index) * bytes + at;
            if self.sending.timing.during(Stage::Disk, || file.read(offset, piece)).is_err() {
                return false;
            }
            self.sending.timing.during(Stage::Digest, || hasher.update(&self.buffer[..count]));
            at += count as u64;
        }
        hasher.finish() == theirs
    }

    /// Sends a block. Where it cannot be read, or was changed, its file is given up, and what is sent of it is damaged on purpose.
    fn send_block(&mut self, file: &Outgoing, index: u32) -> io::Result<()> {
        file.on_sent();
        let length = file.block_length(index);
        let head = Block { file: file.frame.file, index, length: length as u32 }.encode();
        let (bytes, size) = (file.block_bytes(), file.frame.size());
        let verify = self.sending.manner.verify;
        let mut hasher = BlockHasher::new(size, bytes, index);
        // Their digest tells where they were changed before they left. A short file leaves in one piece with what is said of it.
        let is_straight = verify && self.channel.takes_pages() && length > PIECE as u64;
        let pages = if is_straight { file.pages() } else { None };
        let mut failure = None;
        let mut at = 0;
        let mut used = head.len();
        let room = head.len() + PIECE + TRAILER;
        self.buffer.resize(self.buffer.len().max(room), 0);
        self.buffer[..used].copy_from_slice(&head);
        while at < length {
            let count = (length - at).min(PIECE as u64) as usize;
            self.sending.pace(used + count);
            let piece = &mut self.buffer[used..used + count];
            let offset = u64::from(index) * bytes + at;
            if failure.is_none() {
                failure = self.sending.timing.during(Stage::Disk, || file.read(offset, piece)).err();
            }
            if failure.is_some() {
                piece.fill(0);
            }
            if verify {
                self.sending.timing.during(Stage::Digest, || hasher.update(piece));
            }
            if let Some(seal) = self.seal.as_mut().filter(|_| used > 0) {
                seal.update(&self.buffer[..used]);
            }
            at += count as u64;
            if let Some(pages) = pages.filter(|_| failure.is_none()) {
                let (head, body) = self.buffer[..used + count].split_at(used);
                let channel = &mut self.channel;
                self.sending
                    .timing
                    .during(Stage::Network, || channel.write_with_pages(head, body, pages, offset))?;
                used = 0;
            } else if at < length {
                let out = &self.buffer[..used + count];
                self.sending.timing.during(Stage::Network, || self.channel.write_all(out))?;
                used = 0;
            } else {
                // The last piece leaves with the trailer.
                used += count;
            }
            self.look();
        }
        // After everything was read: what changed before would be seen now.
        if failure.is_none() {
            failure = file.check().err();
        }
        let digest = match (&failure, verify) {
            (Some(_), _) => Digest::ABSENT,
            (None, true) => hasher.finish(),
            (None, false) => Digest::default(),
        };
        if let Some(what) = failure {
            self.sending.abandon(file, what);
        }
        let mut append = |bytes: &[u8]| {
            self.buffer[used..used + bytes.len()].copy_from_slice(bytes);
            used += bytes.len();
        };
        append(&digest.0);
        if let Some(seal) = &mut self.seal {
            seal.update(&digest.0);
            append(&seal.tag());
        }
        self.sending.on_sent(length);
        let out = &self.buffer[..used];
        self.sending.timing.during(Stage::Network, || self.channel.write_all(out))?;
        if let Ok(info) = TcpInfo::of(&self.channel) {
            self.sending.on_tcp(self.number, info);
            if let Some(circuit) = &self.sending.manner.circuit {
                circuit.look(&info);
            }
        }
        self.sending.timing.during(Stage::Network, || self.channel.flush())
    }

    /// Whether the circuit still holds, where this is one.
    fn look(&mut self) {
        let Some(circuit) = &self.sending.manner.circuit else { return };
        let now = monotonic();
        if now.since(self.looked) >= OFTEN
            && let Ok(info) = TcpInfo::of(&self.channel)
        {
            self.looked = now;
            circuit.look(&info);
        }
    }

    /// Sends a pack; what of it cannot be read stays out.
    fn send_pack(&mut self, number: u32, planned: &Planned) -> io::Result<()> {
        let what = if planned.offer { What::Offer } else { What::Pack };
        let mut frame = std::mem::take(&mut self.buffer);
        frame.clear();
        Pack::open(what, number, &mut frame);
        let (mut digests, mut content, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (at, (entry, handle)) in planned.entries.iter().enumerate() {
            if planned.failed(at) {
                // As it was when this pack was sent before, and told of.
                Pack::add(&absent(entry), Digest::ABSENT, &[], &mut frame);
                digests.push(None);
                continue;
            }
            let is_read = !(planned.offer && self.sending.manner.by_times);
            let Some(handle) = handle.as_ref().filter(|_| is_read) else {
                Pack::add(entry, Digest::default(), &[], &mut frame);
                digests.push(Some(Digest::default()));
                continue;
            };
            match self.read_small(entry, handle, &mut content) {
                Ok(digest) => {
                    let content = if planned.offer { &[][..] } else { &content };
                    bytes += content.len() as u64;
                    Pack::add(entry, digest, content, &mut frame);
                    digests.push(Some(digest));
                }
                Err(what) => {
                    // The place is kept: the receiver counts from the first.
                    Pack::add(&absent(entry), Digest::ABSENT, &[], &mut frame);
                    if planned.fail(at) {
                        lack(&self.sending, entry.path.to_string(), what);
                    }
                    digests.push(None);
                }
            }
        }
        Pack::close(0, &mut frame);
        planned.on_read(digests);
        self.sending.on_sent(bytes);
        let sent = self.write_frame(&mut frame);
        self.buffer = frame;
        sent
    }

    fn read_small(&self, entry: &Entry, handle: &Handle, content: &mut Vec<u8>) -> Result<Digest, Became> {
        let Kind::File { size } = entry.kind else { return Ok(Digest::default()) };
        let timing = &self.sending.timing;
        content.resize(size as usize, 0);
        timing.during(Stage::Disk, || {
            let source = handle.open().map_err(|error| Became::unread(&error))?;
            if let Some(failure) = read_whole(&source, 0, content) {
                return Err(failure);
            }
            match source.is_unchanged() {
                Ok(true) if size == 0 && matches!(source.read_at(0, &mut [0]), Ok(read) if read > 0) => {
                    Err(of_no_size(&source))
                }
                Ok(true) => Ok(()),
                Ok(false) => Err(Became::changed()),
                Err(error) => Err(Became::Lacking(Lack::Abandoned, error.to_string())),
            }
        })?;
        if !self.sending.manner.verify && !self.sending.manner.resume {
            return Ok(Digest::default());
        }
        Ok(timing.during(Stage::Digest, || digest::whole(content)))
    }

    fn write_frame(&mut self, frame: &mut Vec<u8>) -> io::Result<()> {
        if let Some(seal) = &mut self.seal {
            seal.update(frame);
            frame.extend(seal.tag());
        }
        for piece in frame.chunks(PIECE) {
            self.sending.pace(piece.len());
            self.sending.timing.during(Stage::Network, || self.channel.write_all(piece))?;
            self.look();
        }
        self.channel.flush()
    }
}

impl Drop for StreamOut {
    fn drop(&mut self) {
        // Before the channel is closed.
        self.sending.on_close(self.number);
    }
}

/// Fills `piece`; what becomes of the file where it cannot.
fn read_whole(source: &SourceFile, offset: u64, piece: &mut [u8]) -> Option<Became> {
    match source.read_at(offset, piece) {
        Ok(read) if read == piece.len() => None,
        Ok(_) => Some(Became::Lacking(Lack::Abandoned, "it became shorter while it was read".to_owned())),
        Err(error) => Some(Became::unread(&error)),
    }
}

/// What becomes of a file that has content and no size, unless it was written to just now.
fn of_no_size(source: &SourceFile) -> Became {
    if !source.is_unchanged().is_ok_and(|is| is) {
        return Became::changed();
    }
    Became::of_no_size()
}

/// `entry`, where it could not be read: nothing that a receiver would store.
fn absent(entry: &Entry) -> Entry {
    Entry { kind: Kind::File { size: 0 }, ..entry.clone() }
}

/// How long a connection may take nothing that is not acknowledged: TCP has given up, or the receiver has. A receiver lets go of one that is
/// dead sooner, so that there is room for another. One that has no room, as it has a large file to read or to copy first, says that it
/// lives on the control connection.
const STALL: Nanos = Nanos(60_000_000_000);

/// Bytes that a connection may hold unsent while nothing of it has arrived.
const NARROW: u32 = 16 << 10;

/// How long it waits for what it has taken to leave: longer than any round trip.
const FIRST_ROUND: Nanos = Nanos(2_000_000_000);

/// Files that a connection remembers to have said.
const MOST_SAID: usize = 10_000;

/// Bytes that are read, hashed and sent at once: they stay in the processor's cache.
const PIECE: usize = 256 * 1024;

/// Bytes behind a block's content: its digest, and the seal's tag.
const TRAILER: usize = 32 + Seal::LEN;
