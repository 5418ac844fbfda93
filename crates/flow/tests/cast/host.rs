//! The host of a simulated receiver: what reaches it, and what it does with that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;

use farlink_flow::cast::parity::rebuild;
use farlink_flow::cast::receiver::{Event, Failure, Receiver};
use farlink_flow::cast::seal::Opener;
use farlink_flow::cast::window::Window;
use farlink_flow::digest;
use farlink_wire::cast::control::{Control, Words};
use farlink_wire::cast::packet::{Data, Header};
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::product::Path;
use crate::simulation::{Happening, Packet, Simulation};

/// A receiver's host: its machine, and its disk, which outlives it.
pub(crate) struct Host {
    pub(crate) path: Path,
    pub(crate) machine: Option<Receiver>,
    pub(crate) opener: Option<Opener>,
    /// Of packets that are not sealed.
    pub(crate) window: Window,
    /// Content by name.
    pub(crate) disk: HashMap<RelativePath, Vec<u8>>,
    /// Content of products without a name, and where it is known.
    pub(crate) partial: BTreeMap<u32, (Vec<u8>, Vec<Range<u64>>)>,
    pub(crate) names: BTreeMap<u32, RelativePath>,
    pub(crate) stored: BTreeMap<u32, Nanos>,
    pub(crate) failed: BTreeMap<u32, Failure>,
    /// Whether it was told how many products there are.
    pub(crate) is_told: bool,
    /// Refuses to store these.
    pub(crate) full_for: BTreeSet<u32>,
    /// Has no room for these when they are whole: until then they are kept in memory.
    pub(crate) full_at_last: BTreeSet<u32>,
    /// Damages these on its disk, once.
    pub(crate) damages: BTreeSet<u32>,
    /// Bytes of content that had to be received.
    pub(crate) written: u64,
    pub(crate) queued: u64,
    /// Packets of the group until the next that is lost.
    pub(crate) until_loss: u64,
    /// When its TCP connection has delivered what was sent over it.
    pub(crate) repairs_at: Nanos,
    pub(crate) random: Pcg64Mcg,
}

impl Host {
    pub(crate) fn new(path: Path, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let until_loss = gap(&mut random, path.loss);
        Self {
            path,
            machine: None,
            opener: None,
            window: Window::new(0),
            disk: HashMap::new(),
            partial: BTreeMap::new(),
            names: BTreeMap::new(),
            stored: BTreeMap::new(),
            failed: BTreeMap::new(),
            is_told: false,
            full_for: BTreeSet::new(),
            full_at_last: BTreeSet::new(),
            damages: BTreeSet::new(),
            written: 0,
            queued: 0,
            until_loss,
            repairs_at: Nanos::ZERO,
            random,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.machine.as_ref().is_some_and(Receiver::is_complete)
    }
}

impl Simulation {
    /// The fate of a packet of the group on its way to one host.
    pub(crate) fn receive(&mut self, session: u64, host: usize, packet: &Packet) {
        let now = self.now;
        let each = &mut self.hosts[host];
        if each.until_loss == 0 {
            each.until_loss = gap(&mut each.random, each.path.loss);
            return;
        }
        each.until_loss -= 1;
        let path = each.path;
        let mut later = None;
        if path.late > 0.0 && each.random.random_bool(path.late) {
            later = Some((now.after(path.late_by), 0));
        }
        if let Some((time, buffer)) = path.stopped {
            let phase = now.0 % 100_000_000;
            if phase < time.0 {
                // As the kernel counts: a packet of 1,500 bytes takes 2,304 of the buffer.
                let size = packet.bytes.len() as u64 + 768;
                if each.queued + size > buffer {
                    return;
                }
                each.queued += size;
                later = Some((Nanos(now.0 - phase + time.0), size));
            }
        }
        let twice = path.duplicate > 0.0 && each.random.random_bool(path.duplicate);
        let mut packet = packet.clone();
        if path.corrupt > 0.0 && each.random.random_bool(path.corrupt) {
            let mut bytes = packet.bytes.to_vec();
            let at = each.random.random_range(0..bytes.len());
            bytes[at] ^= 1 << each.random.random_range(0..8);
            packet.bytes = Rc::new(bytes);
        }
        for _ in 0..=u32::from(twice) {
            match later {
                Some((at, buffered)) => {
                    let packet = packet.clone();
                    // Only one of two is in the buffer's account.
                    let buffered = if twice { 0 } else { buffered };
                    self.at(at, Happening::One { session, host, packet, buffered });
                }
                None => self.arrive(host, packet.clone()),
            }
        }
        if twice && let Some((_, buffered)) = later {
            self.hosts[host].queued -= buffered;
        }
    }

    pub(crate) fn arrive(&mut self, host: usize, packet: Packet) {
        let each = &mut self.hosts[host];
        let (Some(machine), Some(opener)) = (&mut each.machine, &mut each.opener) else { return };
        let (header, bytes) = if let Some((header, number)) = packet.plain {
            if !each.window.is_new(number) {
                return;
            }
            each.window.mark(number);
            machine.on_counts(each.window.counts(), 0);
            (header, packet.bytes)
        } else {
            let mut bytes = packet.bytes.to_vec();
            let Ok((header, payload)) = opener.open(&mut bytes) else { return };
            machine.on_counts(opener.counts(), opener.refused().total());
            (header, Rc::new(bytes[payload].to_vec()))
        };
        match header {
            Header::Data(data) => self.write(host, &data, &bytes),
            Header::Parity(parity) => machine.on_parity(self.now, &parity, &bytes),
            Header::Status(position) => machine.on_status(self.now, position),
        }
    }

    pub(crate) fn hear(&mut self, host: usize, frame: &[u8]) {
        let (control, used) = Control::decode(frame).unwrap().unwrap();
        assert_eq!(used, frame.len());
        let now = self.now;
        let Some(machine) = &mut self.hosts[host].machine else { return };
        match control {
            Control::Repair(repair) => {
                let (product, shape, offset) = (repair.product, repair.shape, repair.offset);
                let data = Data { product, shape, offset, repair: true };
                self.write(host, &data, repair.payload);
            }
            Control::Gone(runs) => machine.on_gone(now, &runs),
            Control::Lost { product, reason, .. } => machine.on_lost(product, reason),
            Control::Superseded { product } => machine.on_superseded(product),
            Control::Words(Words::End { products }) => {
                machine.on_end(products);
            }
            other => panic!("{other:?} for a receiver"),
        }
    }

    pub(crate) fn obey(&mut self, host: usize, event: Event) {
        let now = self.now;
        match event {
            Event::Nack(wants) => self.say(host, &Control::Nack(wants)),
            Event::Have(runs) => self.say(host, &Control::Have(runs)),
            Event::Report(report) => self.say(host, &Control::Report(report)),
            Event::Announced { product, announcement, content } => {
                let each = &mut self.hosts[host];
                let machine = each.machine.as_mut().unwrap();
                if each.full_for.contains(&product) {
                    machine.on_unwanted(product, "the disk is full".to_owned().into());
                    return;
                }
                if let Some(found) = each.disk.get(&announcement.path)
                    && !self.products[product as usize].1.is_empty()
                {
                    let known = found.len() as u64;
                    let (bytes, ranges) = each
                        .partial
                        .entry(product)
                        .or_insert_with(|| (vec![0; content as usize], Vec::new()));
                    bytes[..found.len()].copy_from_slice(found);
                    ranges.insert(0, 0..known);
                    machine.on_found(product, std::slice::from_ref(&(0..known)));
                }
                each.names.insert(product, announcement.path);
            }
            Event::Complete { product, announcement, digest: expected, .. } => {
                let each = &mut self.hosts[host];
                let content = each.partial.remove(&product).map(|(content, _)| content);
                let bytes = content.unwrap_or_default();
                if each.full_at_last.contains(&product) {
                    let reason = "the disk is full".to_owned().into();
                    return each.machine.as_mut().unwrap().on_unwanted(product, reason);
                }
                let is_right = !each.damages.remove(&product)
                    && (self.products[product as usize].1.is_empty() || digest::whole(&bytes) == expected);
                if is_right {
                    each.disk.insert(announcement.path, bytes);
                    each.stored.insert(product, now);
                }
                each.machine.as_mut().unwrap().on_checked(now, product, is_right);
            }
            Event::Rebuild(block) => {
                let payload = u64::from(self.config.payload.get());
                let (content, _) = &self.hosts[host].partial[&block.product];
                let product = &self.products[block.product as usize].0;
                let packet = |index: u16| {
                    let from = block.offset + u64::from(index) * payload;
                    product.read(content, from..(from + payload).min(block.shape.stream()))
                };
                let there: Vec<_> = block.there.iter().map(|index| (*index, packet(*index))).collect();
                let rebuilt = rebuild(
                    self.config.payload,
                    block.packets,
                    block.of,
                    there.iter().map(|(index, bytes)| (*index, &bytes[..])),
                    block.parity.iter().map(|(index, bytes)| (*index, &bytes[..])),
                )
                .unwrap();
                for (index, bytes) in rebuilt {
                    let offset = block.offset + u64::from(index) * payload;
                    let data = Data { product: block.product, shape: block.shape, offset, repair: true };
                    let len = payload.min(block.shape.stream() - offset) as usize;
                    self.write(host, &data, &bytes[..len]);
                }
            }
            Event::StillFailed { product, reason } => {
                self.say(host, &Control::Failed { product, reason });
            }
            Event::Failed { product, failure } => {
                if !matches!(failure, Failure::Lost(_)) {
                    let reason = failure.to_string().into();
                    self.say(host, &Control::Failed { product, reason });
                }
                self.hosts[host].failed.insert(product, failure);
            }
        }
    }

    pub(crate) fn write(&mut self, host: usize, data: &Data, payload: &[u8]) {
        let each = &mut self.hosts[host];
        let Some(machine) = &mut each.machine else { return };
        let writes = machine.on_data(self.now, data, payload);
        let is_kept = !self.products[data.product as usize].1.is_empty();
        let size = data.shape.content() as usize;
        for write in writes {
            each.written += write.payload.len() as u64;
            if !is_kept {
                continue;
            }
            let (content, known) =
                each.partial.entry(data.product).or_insert_with(|| (vec![0; size], Vec::new()));
            let bytes = &payload[write.payload.clone()];
            content[write.at as usize..write.at as usize + bytes.len()].copy_from_slice(bytes);
            let end = write.at + bytes.len() as u64;
            match known.last_mut() {
                Some(last) if last.end == write.at => last.end = end,
                _ => known.push(write.at..end),
            }
        }
    }
}

/// Packets until one is lost.
fn gap(random: &mut Pcg64Mcg, loss: f64) -> u64 {
    if loss <= 0.0 {
        return u64::MAX;
    }
    let uniform: f64 = random.random_range(f64::MIN_POSITIVE..1.0);
    (uniform.ln() / (-loss).ln_1p()) as u64
}
