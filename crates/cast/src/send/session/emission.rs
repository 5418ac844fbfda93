//! What leaves: packets to the group, and frames to single receivers.

use farlink_flow::cast::seal::SealError;
use farlink_flow::cast::sender::Send;
use farlink_host::clock::monotonic;
use farlink_host::multicast::GroupSender;
use farlink_wire::cast::control::{Control, repair_header};
use farlink_wire::cast::packet::{Data, Header, OVERHEAD};
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::Session;
use crate::error::CastError;
use crate::products::{NotSent, Unread};
use crate::send::sockets::refused;

impl Session<'_> {
    pub(super) fn send(&mut self, send: Send) -> Result<(), CastError> {
        match send {
            Send::Data { header, bytes } => self.send_data(header, bytes)?,
            Send::Parity(parity) => {
                let made = self.redundancy.parity_of(&parity)?;
                self.run.resize(made.len() + OVERHEAD, 0);
                let sealed = self.sealer.seal(&Header::Parity(parity), made, &mut self.run);
                sealed.map_err(unsealed)?;
                self.transmit_run()?;
            }
            Send::Status(position) => {
                let mut packet = [0; OVERHEAD];
                self.sealer.seal(&Header::Status(position), &[], &mut packet).map_err(unsealed)?;
                self.transmit(&packet)?;
            }
            Send::Repair { receiver, product, shape, offset, bytes } => {
                let again = Send::Repair { receiver, product, shape, offset, bytes };
                match self.products.prepare(product, offset..offset + bytes) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.later.push_back(again);
                        return Ok(());
                    }
                    Err(unread) => {
                        self.on_unread(product, unread, again);
                        return Ok(());
                    }
                }
                let mut content = std::mem::take(&mut self.bytes);
                content.resize(bytes as usize, 0);
                match self.products.read(product, offset..offset + bytes, &mut content) {
                    Ok(()) => {
                        let header = repair_header(product, shape, offset, content.len());
                        let goes_on = self.outbox.post(receiver, |out| {
                            out.extend(header);
                            out.extend_from_slice(&content);
                        });
                        if !goes_on {
                            self.machine.on_writable(receiver, false);
                        }
                    }
                    Err(unread) => self.on_unread(product, unread, again),
                }
                self.bytes = content;
            }
            Send::Gone { receiver, runs } => {
                self.outbox.say(receiver, &Control::Gone(runs));
            }
            Send::Lost { receiver, product, reason } => {
                let path = Text::from(self.products.path(product).to_owned());
                let whole = self.products.whole(product).map(Box::new);
                if !self.outbox.say(receiver, &Control::Lost { product, path, whole, reason }) {
                    self.machine.on_writable(receiver, false);
                }
            }
            Send::Superseded { receiver, product } => {
                self.outbox.say(receiver, &Control::Superseded { product });
            }
            Send::Released { product } => self.products.release(product),
        }
        Ok(())
    }

    /// Goes on with a repair that waits for the digest of a file that is read for that: a part of it at a time, as packets do not wait.
    pub(super) fn send_later(&mut self) -> Result<(), CastError> {
        match self.later.pop_front() {
            Some(send) => self.send(send),
            None => Ok(()),
        }
    }

    /// The product whose first pass waits for a descriptor, though the machine is further on.
    pub(super) fn delayed(&self) -> Option<u32> {
        self.later.iter().find_map(|send| match send {
            Send::Data { header, .. } if !header.repair => Some(header.product),
            _ => None,
        })
    }

    /// What `send` was to bring of a product could not be read.
    fn on_unread(&mut self, product: u32, unread: Unread, send: Send) {
        match unread {
            Unread::NoDescriptor => {
                // Before anything else: packets of a first pass leave in order.
                self.later.push_front(send);
                self.products.close_all();
                self.idle_until = monotonic().after(UNTIL_FREE);
            }
            // It was lost, or superseded, by another that asked for it.
            Unread::Lost(_) if self.machine.stream(product).is_none() => {}
            Unread::Lost(reason) => {
                // What took its place may have done so just now.
                let (lacks, not_sent) = (&mut self.lacks, &mut self.not_sent);
                self.products.notice(&mut |other| {
                    *lacks |= other.failed;
                    not_sent.push(other);
                });
                let is_superseded = self.products.supersede(product);
                // Its first pass may end with what could not be read.
                let is_first = matches!(&send, Send::Data { header, .. } if !header.repair);
                let is_unsent = is_first || self.machine.is_unsent(product);
                // Of what was sent before whoever asks may have all.
                if !is_superseded && !is_unsent && self.products.whole(product).is_some() {
                    let receiver = match send {
                        Send::Repair { receiver, .. } => Some(receiver),
                        _ => None,
                    };
                    self.machine.on_unreadable_again(product, receiver, &Text::from(reason));
                    return;
                }
                let reason = if is_superseded {
                    self.machine.on_superseded(product);
                    SUPERSEDED.to_owned()
                } else {
                    self.lacks = true;
                    self.machine.on_unreadable(product, &Text::from(reason.clone()));
                    reason
                };
                if let Some((path, bytes)) = self.products.lose(product) {
                    self.not_sent.push(NotSent { path, reason, failed: !is_superseded });
                    // What was sent, and can only not be sent again, was sent.
                    if is_unsent {
                        self.progress.lost += u32::from(!is_superseded);
                        self.progress.replaced += u32::from(is_superseded);
                        self.lost_bytes += bytes;
                        self.count();
                    }
                }
            }
        }
    }

    fn send_data(&mut self, header: Data, bytes: u64) -> Result<(), CastError> {
        let mut content = std::mem::take(&mut self.bytes);
        content.resize(bytes as usize, 0);
        let range = header.offset..header.offset + bytes;
        if let Err(unread) = self.products.read(header.product, range, &mut content) {
            self.on_unread(header.product, unread, Send::Data { header, bytes });
            self.bytes = content;
            return Ok(());
        }
        let packet = usize::from(self.payload.get()) + OVERHEAD;
        let payloads = content.chunks(self.payload.get().into());
        self.run.resize(content.len() + payloads.len() * OVERHEAD, 0);
        let mut offset = header.offset;
        for (payload, packet) in payloads.zip(self.run.chunks_mut(packet)) {
            let data = Header::Data(Data { offset, ..header });
            self.sealer.seal(&data, payload, packet).map_err(unsealed)?;
            if !header.repair {
                self.redundancy.add(&header, offset, payload)?;
            }
            offset += payload.len() as u64;
        }
        if header.offset == 0 && !header.repair {
            let now = monotonic();
            self.starts.note(header.product, now);
            self.begun = Some((header.product, now));
        }
        self.transmit_run()?;
        self.bytes = content;
        Ok(())
    }

    fn transmit_run(&mut self) -> Result<(), CastError> {
        let run = std::mem::take(&mut self.run);
        let transmitted = self.transmit(&run);
        self.run = run;
        transmitted
    }

    /// Packets, all but the last of them full. Where the network takes none they are lost as others are, for a while: a route
    /// changes, say.
    fn transmit(&mut self, run: &[u8]) -> Result<(), CastError> {
        let (group, packet) = (self.plan.group, self.payload.get() + OVERHEAD as u16);
        match self.sockets.group.send(run, packet) {
            Ok(()) => {
                (self.refused_since, self.has_sent) = (None, true);
                Ok(())
            }
            Err(error)
                if GroupSender::may_pass(&error) && {
                    let now = monotonic();
                    // A route, or an address, may be taken away for as long as anything else.
                    let patience = if self.has_sent { self.plan.patience } else { REFUSED_FOR };
                    now.since(*self.refused_since.get_or_insert(now)) < patience
                } =>
            {
                Ok(())
            }
            Err(source) => Err(refused("send to", group, source)),
        }
    }
}

fn unsealed(error: SealError) -> CastError {
    CastError::Seal { reason: error.to_string() }
}

/// For how long the network may take no packet before it took one: then it is the wrong network.
const REFUSED_FOR: Nanos = Nanos(5_000_000_000);

/// How soon it is tried again whether there is a descriptor for a file: others end, or close some of theirs.
const UNTIL_FREE: Nanos = Nanos(50_000_000);

/// What is said of a file that could not be read any more where a later one has its name.
const SUPERSEDED: &str = "another file has its name now, and is sent in its place";
