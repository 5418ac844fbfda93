//! Parity over a group of pieces: Reed-Solomon, so that any shard of parity stands in for any lost piece.

use farlink_wire::fabric::datagram::Parity;
use reed_solomon_simd::{decode, encode};

use super::operation::EndpointId;

/// What a datagram carries: frames for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whose frames they are.
    pub to: EndpointId,
    /// They.
    pub frames: Vec<u8>,
}

/// Shards of parity over `pieces`, `of` of them, numbered from 0; nothing where the code has no such numbers.
pub fn shards<'a>(pieces: impl ExactSizeIterator<Item = &'a Piece> + Clone, of: u16) -> Vec<Vec<u8>> {
    let count = pieces.len();
    // Of one piece the code gives as many copies: an answer is most often one, and needs no tables for it.
    let one = pieces.clone().next().filter(|_| count == 1);
    let size = pieces.clone().map(|piece| FRONT + piece.frames.len()).max().unwrap_or(0).next_multiple_of(2);
    if let Some(one) = one {
        return vec![shard(one, size); of.into()];
    }
    encode(count, of.into(), pieces.map(|piece| shard(piece, size))).unwrap_or_default()
}

/// The lost pieces of a group, by their place in it: `there` has those that came, `parities` the shards that came.
pub fn rebuild<'a>(
    pieces: u16,
    there: impl Iterator<Item = (usize, &'a Piece)>,
    parities: &[(Parity, Vec<u8>)],
) -> Vec<(usize, Piece)> {
    let Some((Parity { of, .. }, first)) = parities.first() else { return Vec::new() };
    if pieces == 1 {
        return piece(first).map(|piece| (0, piece)).into_iter().collect();
    }
    let size = first.len();
    let there = there.filter(|(_, piece)| FRONT + piece.frames.len() <= size);
    let originals = there.map(|(index, piece)| (index, shard(piece, size)));
    let shards = parities.iter().map(|(parity, shard)| (usize::from(parity.index), shard));
    let rebuilt = decode(pieces.into(), (*of).into(), originals, shards).unwrap_or_default();
    rebuilt.into_iter().filter_map(|(index, shard)| piece(&shard).map(|piece| (index, piece))).collect()
}

fn shard(piece: &Piece, size: usize) -> Vec<u8> {
    let mut shard = Vec::with_capacity(size);
    shard.extend_from_slice(&(piece.frames.len() as u16).to_be_bytes());
    shard.extend_from_slice(&piece.to.0.to_be_bytes());
    shard.extend_from_slice(&piece.frames);
    shard.resize(size, 0);
    shard
}

fn piece(shard: &[u8]) -> Option<Piece> {
    let (len, rest) = shard.split_first_chunk()?;
    let (to, frames) = rest.split_first_chunk()?;
    let frames = frames.get(..u16::from_be_bytes(*len).into())?.to_vec();
    Some(Piece { to: EndpointId(u64::from_be_bytes(*to)), frames })
}

/// The fewest shards with which a group of `pieces` arrives whole but for one in a hundred, where `loss` of all datagrams are lost;
/// none where so few are lost that it does not pay.
#[must_use]
pub fn worth(pieces: u16, loss: f64) -> u16 {
    if loss < LEAST_LOSS || pieces == 0 {
        return 0;
    }
    let loss = loss.min(0.5);
    let most = (pieces / 2).max(2);
    (1..most).find(|shards| beyond(pieces + shards, *shards, loss) <= MOST_FAILED).unwrap_or(most)
}

/// How likely more than `most` of `count` are lost.
fn beyond(count: u16, most: u16, loss: f64) -> f64 {
    let (mut term, mut sum) = ((1.0 - loss).powi(count.into()), 0.0);
    for lost in 0..=most {
        sum += term;
        term *= f64::from(count - lost) / f64::from(lost + 1) * loss / (1.0 - loss);
    }
    (1.0 - sum).max(0.0)
}

/// Bytes of a shard before a piece's frames: their length, and whose they are.
pub const FRONT: usize = 10;

/// Below it a group of 64 arrives whole in 19 of 20 cases.
const LEAST_LOSS: f64 = 0.0008;
const MOST_FAILED: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_shard_stands_in_for_any_piece() {
        for count in [1_u16, 2, 7, 64] {
            let pieces: Vec<Piece> = (0..count)
                .map(|at| Piece {
                    to: EndpointId(at.into()),
                    frames: vec![at as u8; 1 + usize::from(at) * 13 % 700],
                })
                .collect();
            let made = shards(pieces.iter(), 3);
            let parities: Vec<_> = (0..3_u16)
                .map(|index| {
                    (Parity { group: 0, pieces: count, index, of: 3 }, made[usize::from(index)].clone())
                })
                .collect();
            for lost in 0..count {
                let gone = [usize::from(lost), usize::from((lost + 1) % count)];
                let there = pieces.iter().enumerate().filter(|(at, _)| !gone.contains(at));
                let mut rebuilt = rebuild(count, there, &parities[1..]);
                rebuilt.sort_by_key(|(at, _)| *at);
                assert!(rebuilt.len() >= usize::from(count.min(2)));
                assert!(rebuilt.iter().all(|(at, piece)| *piece == pieces[*at]));
            }
            assert!(count < 3 || rebuild(count, [].into_iter(), &parities).is_empty());
        }
    }

    #[test]
    fn of_one_piece_there_is_what_the_code_gives() {
        for (len, of) in [(0, 1), (1, 2), (700, 1), (8900, 4)] {
            let one = Piece { to: EndpointId(9), frames: (0..len).map(|at| at as u8).collect() };
            let size = (FRONT + len).next_multiple_of(2);
            let coded = encode(1, of, [shard(&one, size)]).unwrap();
            assert_eq!(shards([&one].into_iter(), of as u16), coded);
            let last = Parity { group: 0, pieces: 1, index: of as u16 - 1, of: of as u16 };
            assert_eq!(rebuild(1, [].into_iter(), &[(last, coded[of - 1].clone())]), [(0, one)]);
        }
    }

    #[test]
    fn the_worse_the_loss_the_more_parity() {
        assert_eq!((worth(64, 0.0), worth(64, 0.0001), worth(0, 0.1)), (0, 0, 0));
        assert_eq!((worth(1, 0.01), worth(1, 0.1), worth(1, 0.3)), (1, 1, 2));
        let at = |loss| worth(30, loss);
        assert!(at(0.01) >= 2 && at(0.05) > at(0.01) && at(0.1) > at(0.05) && at(0.5) == 15, "{}", at(0.1));
        assert!((beyond(31, 1, 0.01) - 0.0386).abs() < 0.001);
    }
}
