//! What each fuzz target does with its bytes. The targets are one line each, so that `cargo fuzz` (nightly,
//! for as long as one likes) and the tests below (stable, every seed and some noise) run the same code.
//!
//! A target checks more than that nothing panics: what was decoded must survive being encoded and decoded
//! again, and a machine must keep its promises.
#![forbid(unsafe_code)]

mod fabric;
mod schedule;

pub use fabric::{fabric_address, fabric_datagram, fabric_frame, fabric_parity};
use farlink_flow::timetable::Timetable;
use farlink_link::background::Background;
use farlink_link::conditions::{QueueLimit, Reorder};
use farlink_link::link::{Link, Segments};
use farlink_link::{Conditions, Framing, Loss};
use farlink_wire::bootstrap::{Answer, Call, Invitation, Ports};
use farlink_wire::cast::control::Control;
use farlink_wire::cast::packet::{Clear, Header, OVERHEAD, TAG};
use farlink_wire::cast::{Announcement, Payload};
use farlink_wire::checksum::{fold, sum};
use farlink_wire::entry::Digest;
use farlink_wire::frame::{Block, File, Head, Holes, Pack, What, encode_end};
use farlink_wire::ip::IpHeader;
use farlink_wire::journal::Journal;
use farlink_wire::key::{Authorized, KnownHost, PublicKey, lines};
use farlink_wire::membership::Membership;
use farlink_wire::message::{Goal, Hello, Message, Preamble};
use farlink_wire::path::{RelativePath, bytes_of, readable};
use farlink_wire::profile_model::{ProfileModel, Wishes};
use farlink_wire::quantity::{BitsPerSec, Bytes, Fraction, Nanos};
use farlink_wire::record::Record;
use farlink_wire::superpacket::SuperPacket;
use farlink_wire::vnet::VnetHeader;
pub use schedule::schedule;

/// Quantities as people write them: what was understood reads back from how it is shown.
pub fn quantity(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(time) = text.parse::<Nanos>() {
        assert!(time == Nanos::ZERO || time.to_string().parse::<Nanos>().is_ok(), "{time}");
    }
    if let Ok(rate) = text.parse::<BitsPerSec>() {
        assert!(rate.to_string().parse::<BitsPerSec>().is_ok(), "{rate}");
    }
    if let Ok(size) = text.parse::<Bytes>() {
        assert!(size == Bytes(0) || size.to_string().parse::<Bytes>().is_ok(), "{size}");
    }
    if let Ok(share) = text.parse::<Fraction>() {
        assert!(share.to_string().parse::<Fraction>().is_ok(), "{share}");
    }
    if let Ok(loss) = text.parse::<Loss>() {
        assert!((0.0..=1.0).contains(&loss.mean()), "{text}");
    }
    if let Ok(limit) = text.parse::<QueueLimit>() {
        let is_none = matches!(limit, QueueLimit::Time(Nanos::ZERO) | QueueLimit::Bytes(Bytes(0)));
        assert!(is_none || limit.to_string().parse::<QueueLimit>().is_ok(), "{limit}");
    }
    if let Ok(reorder) = text.parse::<Reorder>() {
        let is_none = reorder.extra == Nanos::ZERO;
        assert!(is_none || reorder.to_string().parse::<Reorder>().is_ok(), "{reorder}");
    }
    if let Ok(load) = text.parse::<Background>() {
        assert!(load.to_string().parse::<Background>().is_ok(), "{load}");
    }
    if let Ok(timetable) = text.parse::<Timetable>() {
        let greatest = timetable.greatest();
        let held = |hour: u64| timetable.at(Nanos(hour * 3_600_000_000_000));
        assert!((0..24).all(|hour| greatest.is_none_or(|most| held(hour).is_some_and(|rate| rate <= most))));
    }
    if let Ok(framing) = text.parse::<Framing>() {
        assert_eq!(framing.to_string().parse(), Ok(framing));
    }
}

/// A line of a records file: what was read can be written and read again.
pub fn record(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(record) = Record::parse(text) {
        let line = record.line();
        assert_eq!(line.matches('\n').count(), 1, "a record is one line");
        assert!(Record::parse(&line).is_ok(), "{line}");
    }
}

/// A profile model: what was read can be written and read again, and tells of what is on its axes.
pub fn profile_model(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(model) = ProfileModel::parse(text) {
        assert_eq!(ProfileModel::parse(&model.line()).unwrap(), model);
        let goal = Goal::size(Bytes(1_000_000_000)).unwrap();
        for rtt in [Nanos(1), Nanos(91_600_000)] {
            if let Ok(ranked) = model.ranked(rtt, goal, &Wishes::default()) {
                assert_eq!(ranked.len(), model.len());
                assert!(ranked.iter().all(|each| each.throughput_bps.is_finite()));
            }
        }
    }
}

/// A packet as the kernel hands it over: a virtio-net header and what may be an IP packet. Its segments share
/// its payload without gap or overlap, and each of them, completed, is a packet.
pub fn superpacket(data: &[u8]) {
    let Some((header, packet)) = data.split_first_chunk::<{ VnetHeader::LEN }>() else { return };
    let Some(vnet) = VnetHeader::decode(header) else { return };
    assert_eq!(vnet.encode(), *header);
    let Ok(parsed) = SuperPacket::parse(vnet, packet) else { return };
    let (mut head, mut whole) = (Vec::new(), Vec::new());
    let mut reached = None;
    for index in 0..parsed.segments() {
        let payload = parsed.cut(packet, &(index..index + 1), &mut head);
        if let Some(reached) = reached {
            assert_eq!(payload.start, reached, "segment {index}");
        }
        reached = Some(payload.end);
        parsed.complete(packet, index, &mut whole);
        assert_eq!(whole.len() as u64, VnetHeader::LEN as u64 + u64::from(parsed.segment_len(index)));
    }
    assert_eq!(reached, Some(packet.len()));
}

/// A packet of a host that may say which multicast groups it wants: what it says is of groups, and of one family.
pub fn membership(data: &[u8]) {
    let Some(ip) = IpHeader::decode(data) else { return };
    let mut packet = data.to_vec();
    if let Some(message) = packet.get_mut(ip.payload_at..)
        && message.len() >= 4
        && ip.destination.is_ipv4()
    {
        // Made right, so that what stands behind it is looked at too.
        message[2..4].fill(0);
        let checksum = !fold(sum(0, message));
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    for packet in [data, &packet] {
        if let Ok(Some(Membership::Report(wishes))) = Membership::decode(&ip, packet) {
            for wish in wishes {
                assert!(wish.group.is_multicast() && wish.group.is_ipv4() == ip.source.is_ipv4());
                assert!(wish.sources.iter().all(|source| source.is_ipv4() == wish.group.is_ipv4()));
            }
        }
    }
}

/// The first bytes of a connection to `farlink serve`.
pub fn greeting(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<{ Hello::LEN }>()
        && let Ok(hello) = Hello::decode(bytes)
    {
        assert_eq!(hello.encode(), *bytes);
    }
    if let Some(bytes) = data.first_chunk::<{ Preamble::LEN }>()
        && let Ok(preamble) = Preamble::decode(bytes)
    {
        assert_eq!(preamble.encode(), *bytes);
    }
}

/// A control connection: a message that was understood survives being sent on.
pub fn message(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((message, used))) = Message::decode(rest) {
        assert!(used >= 4 && used <= rest.len());
        let bytes = message.encode();
        match Message::decode(&bytes) {
            Ok(Some((again, len))) => assert_eq!((again, len), (message, bytes.len())),
            other => panic!("{other:?}"),
        }
        rest = &rest[used..];
    }
}

/// A name of a file, as bytes and as text: what was accepted has no way out, and its text gives it back.
pub fn path(data: &[u8]) {
    assert_eq!(bytes_of(&readable(data)), data);
    let text = std::str::from_utf8(data).ok().and_then(|text| RelativePath::try_from(text.to_owned()).ok());
    for path in RelativePath::new(data).ok().into_iter().chain(text) {
        assert!(path.components().all(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&0)));
        assert_eq!(path.components().collect::<Vec<_>>().join(&b'/'), path.as_bytes());
        if let (Some(parent), Some(name)) = (path.parent(), path.name()) {
            assert_eq!(parent.join(name).as_ref(), Ok(&path));
        }
        assert_eq!(RelativePath::try_from(String::from(path.clone())), Ok(path));
    }
}

/// A data connection of a file transfer: a frame that was understood is written as it was read.
pub fn frame(data: &[u8]) {
    let mut rest = data;
    let mut written = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<{ Head::LEN }>()
        && let Ok(head) = Head::decode(*head)
        && let Some((body, mut behind)) = behind.split_at_checked(head.length as usize)
    {
        written.clear();
        match head.what {
            What::File => File::decode(body).map(|file| file.encode(&mut written)),
            What::Holes => Holes::decode(body).map(|holes| holes.encode(&mut written)),
            What::Block => Block::decode(body).map(|block| {
                written.extend(block.encode());
                behind = behind.get(block.length as usize + Digest::LEN..).unwrap_or(&[]);
            }),
            what @ (What::Pack | What::Offer) => Pack::decode(what, body).map(|pack| {
                Pack::open(what, pack.pack, &mut written);
                pack.items
                    .iter()
                    .for_each(|item| Pack::add(&item.entry, item.digest, item.content, &mut written));
                Pack::close(0, &mut written);
            }),
            What::End => {
                encode_end(&mut written);
                Ok(())
            }
        }
        .unwrap_or_else(|_| written.extend(&rest[..Head::LEN + body.len()]));
        assert_eq!(written, rest[..Head::LEN + body.len()]);
        rest = behind;
    }
}

/// A datagram of a multicast session, as it is behind its seal: what was understood is written as it was read, and nothing of it lies
/// outside of its stream. Also a product's announcement.
pub fn packet(data: &[u8]) {
    if let Ok(announcement) = Announcement::decode(data) {
        assert!(!announcement.path.is_root());
        assert_eq!(announcement.encode(), data);
    }
    let Ok(clear) = Clear::decode(data) else { return };
    assert_eq!(clear.encode(), data[..Clear::LEN]);
    let payload = data.len() - OVERHEAD;
    let Some(header) = data[Clear::LEN..data.len() - TAG].first_chunk() else { return };
    let Ok(read) = Header::decode(header, payload) else { return };
    assert_eq!(read.encode(), *header);
    if let Header::Data(data) = read {
        let end = data.offset + payload as u64;
        assert!(end <= data.shape.stream() && data.shape.content() < data.shape.stream());
        let parts: usize = data.shape.parts(data.offset..end).map(|(_, range)| range.len()).sum();
        assert_eq!(parts, payload);
        let full = Payload::try_from(1416).unwrap();
        assert!(data.offset / 1416 < data.shape.packets(full));
    }
}

/// A control connection of a multicast session: what was understood survives being sent on.
pub fn control(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((control, used))) = Control::decode(rest) {
        assert_eq!(Control::length(rest).ok().flatten(), Some(used));
        let mut bytes = Vec::new();
        control.encode(&mut bytes);
        match Control::decode(&bytes) {
            Ok(Some((again, len))) => assert_eq!((again, len), (control, bytes.len())),
            other => panic!("{other:?}"),
        }
        rest = &rest[used..];
    }
}

/// The journal of a partial file: its rows are of blocks of the file, in order, and read the same when they are written again.
pub fn journal(data: &[u8]) {
    let Ok(read) = Journal::decode(data) else { return };
    assert!(read.len <= data.len() && read.rows.windows(2).all(|pair| pair[0].index < pair[1].index));
    assert!(read.rows.iter().all(|row| row.index < read.journal.blocks()));
    let mut bytes = read.journal.encode().to_vec();
    assert_eq!(bytes, data[..Journal::LEN]);
    read.rows.iter().for_each(|row| bytes.extend(read.journal.encode_row(row)));
    let again = Journal::decode(&bytes).unwrap();
    assert_eq!((again.journal, again.rows, again.len), (read.journal, read.rows, bytes.len()));
}

/// Keys and the files that list them: a line that was understood reads back from how it is shown, and grants the same.
pub fn key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    if let Ok(read) = lines::<Authorized>(text) {
        for (_, line) in read {
            for granted in line.grant.read.iter().chain(&line.grant.write) {
                assert!(granted.is_absolute() && !granted.to_string_lossy().contains("/../"), "{granted:?}");
            }
            assert_eq!(line.to_string().parse(), Ok(line));
        }
    }
    if let Ok(read) = lines::<KnownHost>(text) {
        for (_, line) in read {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
    }
}

/// What is said through ssh: a line that was understood survives being sent on.
pub fn bootstrap(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(call) = Call::parse(text) {
        assert_eq!(Call::parse(&call.line()).ok(), Some(call));
    }
    if let Ok(invitation) = Invitation::parse(text) {
        assert_eq!(Invitation::parse(&invitation.line()).ok(), Some(invitation));
    }
    if let Ok(Some(answer)) = Answer::parse(text) {
        assert_eq!(Answer::parse(&answer.line()).ok(), Some(Some(answer)));
    }
    if let Ok(ports) = text.parse::<Ports>() {
        assert_eq!(ports.to_string().parse(), Ok(ports));
    }
}

/// The link: whatever is offered, whenever, nothing arrives before the one-way delay has passed, and the
/// segments that arrive are those that were offered and not dropped.
pub fn link(data: &[u8]) {
    let Some((&[rate, loss, reorder, duplicate, corrupt], steps)) = data.split_first_chunk::<5>() else {
        return;
    };
    let share = |byte: u8| Fraction::new(f64::from(byte) / 255.0).unwrap_or_default();
    let delay = Nanos(1_000_000);
    let mut conditions = Conditions {
        rate: BitsPerSec::new(u64::from(rate) * 40_000_000),
        delay,
        loss: Loss::Random(share(loss)),
        duplicate: share(duplicate),
        corrupt: share(corrupt),
        ..Conditions::default()
    };
    conditions.reorder.share = share(reorder);
    let mut now = Nanos::ZERO;
    let mut link = Link::new(conditions, 1, now);
    let (mut offered, mut promised, mut arrived) = (0, 0, Arrived::default());
    for step in steps.chunks_exact(2) {
        now = now.after(Nanos(u64::from(step[0]) * 1_000));
        let segments = Segments { count: u16::from(step[1] % 45) + 1, full: 1500, last: 60 };
        offered += u64::from(segments.count);
        promised += u64::from(link.on_packet(now, segments, &now));
        arrived.drain(&mut link, now, delay);
    }
    while let Some(next) = link.deadline() {
        assert!(next >= now, "the deadline {next} has passed at {now}");
        now = next;
        arrived.drain(&mut link, now, delay);
    }
    let counters = link.counters();
    assert_eq!(counters.segments, offered);
    let dropped = counters.dropped_queue + counters.dropped_loss;
    assert_eq!(arrived.segments + dropped, offered + counters.duplicated);
    assert_eq!(arrived.deliveries, promised);
}

/// What has come out of a link.
#[derive(Default)]
struct Arrived {
    deliveries: u64,
    segments: u64,
}

impl Arrived {
    /// Takes what has arrived by `now`. Each packet is the time at which it was offered.
    fn drain(&mut self, link: &mut Link<Nanos>, now: Nanos, delay: Nanos) {
        while let Some(delivery) = link.poll(now) {
            assert!(delivery.due <= now, "it is not due before {}", delivery.due);
            assert!(delivery.due.since(delivery.packet) >= delay, "it took less than the delay");
            self.deliveries += 1;
            self.segments += u64::from(delivery.run.end - delivery.run.start);
        }
    }
}

#[cfg(test)]
mod tests;
