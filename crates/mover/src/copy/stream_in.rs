//! One data connection of a receiver: takes frames, checks them, and stores what they carry.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::{Arc, Weak};
use std::time::Duration;

use farlink_host::socket;
use farlink_wire::entry::Digest;
use farlink_wire::frame::{Block, File, Head, Holes, Pack, What, block_bytes};

use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::lost::Lost;
use super::receiving::{Incoming, Payload, Receiving, block_length};
use super::seal::Seal;
use super::timing::Stage;
use super::worker::{self, Shared};
use crate::channel::{Channel, Wait};

/// A data connection of the receiving end.
pub(crate) struct StreamIn {
    receiving: Arc<Receiving>,
    number: u32,
    channel: Channel,
    seal: Option<Seal>,
    /// Files that were said here. Those that are stored or given up are no more: they have descriptors, of which there are few.
    said: HashMap<u32, Weak<Incoming>>,
    buffer: Vec<u8>,
}

/// Why a connection ends before its time.
#[derive(Debug)]
enum Break {
    /// It broke: what it carried comes on another.
    Lost(io::Error),
    /// What came must not be obeyed.
    Hostile(CopyError),
}

impl From<io::Error> for Break {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl<E: Into<CopyError>> From<Refused<E>> for Break {
    fn from(error: Refused<E>) -> Self {
        Self::Hostile(error.0.into())
    }
}

struct Refused<E>(E);

impl StreamIn {
    /// Receives in a thread of its own until the sender ends the connection or it breaks.
    pub(crate) fn start(receiving: &Arc<Receiving>, number: u32, channel: Channel) -> io::Result<()> {
        let seal = receiving.manner.seal.map(|secret| Seal::new(&secret, number));
        let mut channel = channel;
        channel.set_wait(Some(Wait { patience: SILENCE, stop: receiving.halt.clone(), while_full: false }));
        if let Some(tcp) = channel.tcp() {
            socket::keep_alive(tcp, UNASKED, ASKED_EVERY, MOST_ASKED)?;
            socket::offer_window(tcp, FIRST_WINDOW)?;
        }
        receiving.on_stream();
        let receiving = Arc::clone(receiving);
        let mut stream =
            Self { receiving, number, channel, seal, said: HashMap::new(), buffer: vec![0; PIECE] };
        let shared = Arc::clone(&stream.receiving);
        worker::start(&shared, "farlink-receive", move || stream.run())
            .inspect_err(|error| shared.on_lost(Lost::new(number, error)))
    }

    fn run(&mut self) {
        // One that was handed over as all ended is nobody's: who waited for the end may have gone on.
        if self.receiving.halt.is_raised() {
            return;
        }
        match self.work() {
            Ok(()) => {}
            Err(Break::Lost(error)) => self.receiving.on_lost(Lost::new(self.number, &error)),
            Err(Break::Hostile(error)) => self.receiving.abort(Some(error)),
        }
    }

    fn work(&mut self) -> Result<(), Break> {
        loop {
            self.receiving.wait_to_be_heard();
            let mut head = [0; Head::LEN];
            self.take_into(&mut head)?;
            let head = Head::decode(head).map_err(Refused)?;
            if head.what == What::End {
                self.check()?;
                self.note_buffer();
                return Ok(());
            }
            let mut body = std::mem::take(&mut self.buffer);
            let length = head.length as usize;
            if body.len() < length {
                body.resize(length, 0);
            }
            let taken = self.take_into(&mut body[..length]);
            self.buffer = body;
            taken?;
            match head.what {
                What::Block => self.block(length)?,
                what => self.frame(what, length)?,
            }
        }
    }

    /// A frame without payload, whose body is in the buffer.
    fn frame(&mut self, what: What, length: usize) -> Result<(), Break> {
        // Nothing is obeyed before it is known to be the sender's.
        self.check()?;
        let body = &self.buffer[..length];
        match what {
            What::File => {
                let file = File::decode(body).map_err(Refused)?;
                let number = file.file;
                let incoming = self.receiving.open(file).map_err(Break::Hostile)?;
                if self.said.len() > MOST_SAID {
                    self.said.clear();
                }
                self.said.insert(number, incoming.as_ref().map(Arc::downgrade).unwrap_or_default());
            }
            What::Holes => {
                let holes = Holes::decode(body).map_err(Refused)?;
                if let Some(incoming) = self.open(holes.file)? {
                    self.receiving.on_holes(&incoming, &holes).map_err(Break::Hostile)?;
                }
            }
            What::Pack => {
                let pack = Pack::decode(what, body).map_err(Refused)?;
                self.receiving.on_bytes(pack.items.iter().map(|item| item.content.len()).sum());
                self.receiving.on_pack(&pack).map_err(Break::Hostile)?;
            }
            What::Offer => {
                let offer = Pack::decode(what, body).map_err(Refused)?;
                self.receiving.on_offer(&offer).map_err(Break::Hostile)?;
            }
            What::Block | What::End => {}
        }
        if self.buffer.len() > MOST_KEPT {
            self.buffer = vec![0; PIECE];
        }
        Ok(())
    }

    /// A block, whose body is in the buffer.
    fn block(&mut self, length: usize) -> Result<(), Break> {
        let block = Block::decode(&self.buffer[..length]).map_err(Refused)?;
        let Some(incoming) = self.open(block.file)?.filter(|_| self.receiving.wants(block.file, block.index))
        else {
            self.pass_over(block)?;
            self.receiving.on_again(block.file, block.index);
            return Ok(());
        };
        let taken = self.take_block(block, &incoming);
        Receiving::on_end_of_block(&incoming, block.index, self.number);
        taken
    }

    /// The file of this number, which was said; `None` where it is stored or given up.
    fn open(&self, file: u32) -> Result<Option<Arc<Incoming>>, Break> {
        let said = self.said.get(&file).ok_or(Break::Hostile(CopyError::UnknownFile { file }))?;
        Ok(said.upgrade())
    }

    fn take_block(&mut self, block: Block, incoming: &Arc<Incoming>) -> Result<(), Break> {
        if u64::from(block.length) != block_length(&incoming.frame, block.index) {
            return Err(Break::Hostile(CopyError::NoSuchBlock { file: block.file, index: block.index }));
        }
        let from = u64::from(block.index) * block_bytes(incoming.frame.size());
        let (total, verify) = (block.length as usize, self.receiving.manner.verify);
        let mut hasher = Receiving::hasher(incoming, block.index);
        let mut written = true;
        let mut at = 0;
        while at < total {
            let count = (total - at).min(PIECE);
            let mut piece = std::mem::take(&mut self.buffer);
            let taken = self.take_payload(&mut piece[..count]);
            self.buffer = piece;
            taken?;
            let piece = &self.buffer[..count];
            if verify {
                self.receiving.timing.during(Stage::Digest, || hasher.update(piece));
            }
            written = written
                && self.receiving.write(incoming, (block.index, self.number), from + at as u64, piece);
            self.receiving.on_bytes(count);
            at += count;
        }
        let said = self.digest()?;
        self.note_buffer();
        let digest = if verify { hasher.finish() } else { Digest::default() };
        let payload = if written { Payload::Written(digest) } else { Payload::Dropped };
        if !written {
            self.said.insert(block.file, Weak::new());
        }
        let by = (block.index, self.number);
        self.receiving.on_block(incoming, by, payload, said).map_err(Break::Hostile)
    }

    /// A block of a file that is stored or given up.
    fn pass_over(&mut self, block: Block) -> Result<(), Break> {
        let mut left = block.length as usize;
        while left > 0 {
            let count = left.min(PIECE);
            let mut piece = std::mem::take(&mut self.buffer);
            let taken = self.take_payload(&mut piece[..count]);
            self.buffer = piece;
            taken?;
            left -= count;
        }
        self.digest().map(drop)
    }

    /// The digest behind a block's payload, and the end of its frame.
    fn digest(&mut self) -> Result<Digest, Break> {
        let mut said = [0; Digest::LEN];
        self.take_into(&mut said)?;
        self.check()?;
        Ok(Digest(said))
    }

    /// What the kernel has made of the receive buffer.
    fn note_buffer(&self) {
        if let Some(bytes) =
            self.channel.tcp().and_then(|tcp| socket::buffer_size(tcp, socket::Buffer::Receive).ok())
        {
            self.receiving.on_buffer(bytes);
        }
    }

    /// A block's payload: its tag covers its digest, which covers it.
    fn take_payload(&mut self, bytes: &mut [u8]) -> Result<(), Break> {
        let channel = &mut self.channel;
        Ok(self.receiving.timing.during(Stage::Network, || channel.read_exact(bytes))?)
    }

    fn take_into(&mut self, bytes: &mut [u8]) -> Result<(), Break> {
        let channel = &mut self.channel;
        self.receiving.timing.during(Stage::Network, || channel.read_exact(bytes))?;
        if let Some(seal) = &mut self.seal {
            seal.update(bytes);
        }
        Ok(())
    }

    /// The end of a frame: its tag, where it has one, is right.
    fn check(&mut self) -> Result<(), Break> {
        let Some(seal) = &mut self.seal else { return Ok(()) };
        let mut tag = [0; Seal::LEN];
        self.channel.read_exact(&mut tag)?;
        if seal.verify(&tag) { Ok(()) } else { Err(Break::Hostile(CopyError::Forged)) }
    }
}

/// How long a connection may bring nothing. A sender may wait for the receiver to look at what it has; that it is alive is the control
/// connection's to know, and that it is still connected the kernel's.
const SILENCE: Nanos = Nanos(86_400_000_000_000);

/// Bytes of the window before the kernel has seen what comes: what slow start has on its way in its third round trip. The kernel's own
/// 64 KiB cost two of them.
const FIRST_WINDOW: u32 = 1 << 20;

/// How long a connection may bring nothing before its far kernel is asked whether it is there. All answers lost, it has ended after 50 s:
/// before a sender gives it up, which takes a minute, and dials another in its place.
const UNASKED: Duration = Duration::from_secs(20);

/// How often it is asked.
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// How many answers may be lost.
const MOST_ASKED: u32 = 3;

/// Bytes that are received, hashed and written at once: they stay in the processor's cache.
const PIECE: usize = 256 * 1024;

/// A larger buffer, of a pack, is not kept.
const MOST_KEPT: usize = 4 << 20;

/// Files that a connection remembers.
const MOST_SAID: usize = 10_000;
