//! What the processes of a parallel program read of each other.

use farlink_flow::fabric::operation::EndpointId;
use farlink_flow::fabric::parity::{Piece, rebuild, shards};
use farlink_wire::fabric::address::Address;
use farlink_wire::fabric::datagram::{About, Ack, Clear, Connect, Data, Farewell, JoinedAck, Parity};
use farlink_wire::fabric::frame::{BEGIN, Frame};

/// An endpoint's address: what was understood survives being written again.
pub fn fabric_address(data: &[u8]) {
    if let Ok(address) = Address::decode(data) {
        assert_eq!(Address::decode(&address.encode()), Ok(address));
    }
}

/// A datagram between hosts, as it is behind its seal: what was understood survives being written again, and what is acknowledged
/// is in order.
pub fn fabric_datagram(data: &[u8]) {
    let Ok(clear) = Clear::decode(data) else { return };
    let mut again = data.to_vec();
    again[..Clear::LEN].copy_from_slice(&clear.encode());
    assert_eq!(Clear::decode(&again), Ok(clear));
    let body = &data[Clear::LEN..];
    match clear.about {
        About::Data => {
            if let Ok((data, frames)) = Data::decode(body) {
                assert_eq!((&data.encode()[..], frames), body.split_at(Data::LEN));
            }
        }
        About::Parity => {
            if let Ok((parity, shard)) = Parity::decode(body) {
                assert!(parity.index < parity.of && parity.pieces > 0);
                assert_eq!(Parity::decode(&[&parity.encode(), shard].concat()), Ok((parity, shard)));
            }
        }
        About::Ack => {
            if let Ok(ack) = Ack::decode(body) {
                is_in_order(&ack);
                assert_eq!(Ack::decode(&ack.encode()), Ok(ack));
            }
        }
        About::DataWithAck => {
            if let Ok((data, behind)) = Data::decode(body)
                && let Ok((joined, frames)) = JoinedAck::decode(behind)
            {
                is_in_order(&joined.ack);
                let bytes = joined.encode();
                assert_eq!(
                    (&data.encode()[..], bytes.len()),
                    (&body[..Data::LEN], behind.len() - frames.len())
                );
                assert_eq!(JoinedAck::decode(&bytes), Ok((joined, &[][..])));
            }
        }
        About::Connect => {
            if let Ok(connect) = Connect::decode(body) {
                assert_eq!(Connect::decode(&connect.encode()), Ok(connect));
            }
        }
        About::Farewell => {
            if let Ok(farewell) = Farewell::decode(body) {
                assert_eq!(&farewell.encode()[..], &body[..Farewell::LEN]);
            }
        }
        About::Disconnect => {}
    }
}

fn is_in_order(ack: &Ack) {
    assert!(ack.runs.len() <= Ack::RUNS && ack.runs.iter().all(|(first, end)| first < end));
    assert!(ack.runs.windows(2).all(|pair| pair[1].1 <= pair[0].0), "{:?}", ack.runs);
}

/// Frames of a datagram or of shared memory: what was understood survives being written again.
pub fn fabric_frame(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((frame, behind))) = Frame::decode(rest) {
        let chunk: &[u8] = match frame {
            Frame::Eager(_, chunk) | Frame::More(chunk) | Frame::Part { bytes: chunk, .. } => chunk,
            _ => &[],
        };
        let mut head = [0; BEGIN];
        let length = frame.encode_head(chunk.len(), &mut head);
        assert_eq!((length, chunk.len()), (frame.head(), rest.len() - behind.len() - length));
        let bytes = [&head[..length], chunk].concat();
        assert_eq!(Frame::decode(&bytes), Ok(Some((frame, &[][..]))));
        rest = behind;
    }
}

/// Shards of parity: what a peer sends as such gives back pieces of its group or none, and ours give back what was lost.
pub fn fabric_parity(data: &[u8]) {
    let Some((&[pieces, of, lost], content)) = data.split_first_chunk::<3>() else { return };
    let (pieces, of) = (u16::from(pieces), u16::from(of) + 1);
    let theirs: Vec<_> = content
        .chunks(64)
        .zip(0..of)
        .map(|(shard, index)| (Parity { group: 1, pieces, index, of }, shard.to_vec()))
        .collect();
    for (place, _) in rebuild(pieces, std::iter::empty(), &theirs) {
        assert!(place < usize::from(pieces));
    }
    let made: Vec<_> = content
        .chunks(48)
        .take(pieces.into())
        .map(|frames| Piece { to: EndpointId(lost.into()), frames: frames.to_vec() })
        .collect();
    let Some(gone) = usize::from(lost).checked_rem(made.len()) else { return };
    let count = made.len() as u16;
    let ours: Vec<_> = shards(made.iter(), of)
        .into_iter()
        .zip(0..)
        .map(|(shard, index)| (Parity { group: 1, pieces: count, index, of }, shard))
        .collect();
    let there = made.iter().enumerate().filter(|(place, _)| *place != gone);
    if !ours.is_empty() {
        assert_eq!(rebuild(count, there, &ours), [(gone, made[gone].clone())]);
    }
}
