//! The stream of a product: announcement, content, digest.

use std::ops::Range;

use super::{Announcement, MOST_STREAM, Payload};
use crate::entry::Digest;

/// How long a product's stream is and how it is divided. It is in every packet, so that none of them depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    head: u16,
    stream: u64,
}

/// A part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of the encoded announcement, from this byte on.
    Head(usize),
    /// Of the content, from this byte on.
    Content(u64),
    /// Of the digest of the content, from this byte on.
    Digest(usize),
}

impl Shape {
    /// That of `content` bytes behind an announcement of `head`; `None` out of bounds.
    #[must_use]
    pub fn new(head: usize, content: u64) -> Option<Self> {
        let head = u16::try_from(head).ok()?;
        Self::of_stream(head, content.checked_add(u64::from(head) + Digest::LEN as u64)?)
    }

    /// That of a stream of `stream` bytes with an announcement of `head`, as packets say it; `None` out of bounds.
    #[must_use]
    pub fn of_stream(head: u16, stream: u64) -> Option<Self> {
        let least = u64::from(head) + Digest::LEN as u64;
        let heads = Announcement::LEAST..=Announcement::MOST;
        (heads.contains(&usize::from(head)) && (least..=MOST_STREAM).contains(&stream))
            .then_some(Self { head, stream })
    }

    /// Bytes of the encoded announcement.
    #[must_use]
    pub const fn head(self) -> u16 {
        self.head
    }

    /// Bytes of the whole stream.
    #[must_use]
    pub const fn stream(self) -> u64 {
        self.stream
    }

    /// Bytes of the content.
    #[must_use]
    pub const fn content(self) -> u64 {
        self.stream - self.head as u64 - Digest::LEN as u64
    }

    /// Packets that it takes.
    #[must_use]
    pub const fn packets(self, payload: Payload) -> u64 {
        self.stream.div_ceil(payload.get() as u64)
    }

    /// The bytes of the stream between `range`, as its parts: what each is, and which of the bytes it has, counted from the start of
    /// `range`. In order, none empty.
    pub fn parts(self, range: Range<u64>) -> impl Iterator<Item = (Part, Range<usize>)> {
        debug_assert!(range.start <= range.end && range.end <= self.stream, "{range:?} of {self:?}");
        let head = u64::from(self.head);
        let digest = self.stream - Digest::LEN as u64;
        [(0, head), (head, digest), (digest, self.stream)].into_iter().enumerate().filter_map(
            move |(which, (from, to))| {
                let (start, end) = (range.start.max(from), range.end.min(to));
                let part = match which {
                    0 => Part::Head((start.saturating_sub(from)) as usize),
                    1 => Part::Content(start.saturating_sub(from)),
                    _ => Part::Digest((start.saturating_sub(from)) as usize),
                };
                (start < end).then(|| (part, (start - range.start) as usize..(end - range.start) as usize))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shape_has_room_for_what_it_must_have() {
        assert_eq!(Shape::new(20, 0).unwrap().stream(), 52);
        assert_eq!(Shape::of_stream(20, 51), None);
        assert_eq!(Shape::of_stream(15, 1000), None);
        assert_eq!(Shape::new(4111, 1), None);
        assert_eq!(Shape::new(16, u64::MAX), None);
        assert_eq!(Shape::new(16, MOST_STREAM - 48).unwrap().content(), MOST_STREAM - 48);
        assert_eq!(Shape::new(16, MOST_STREAM - 47), None);
    }

    #[test]
    fn a_small_product_is_one_packet_of_three_parts() {
        let shape = Shape::new(20, 100).unwrap();
        assert_eq!(shape.packets(Payload::try_from(1416).unwrap()), 1);
        let parts: Vec<_> = shape.parts(0..152).collect();
        assert_eq!(parts, [(Part::Head(0), 0..20), (Part::Content(0), 20..120), (Part::Digest(0), 120..152)]);
        assert_eq!(
            shape.parts(30..125).collect::<Vec<_>>(),
            [(Part::Content(10), 0..90), (Part::Digest(0), 90..95)]
        );
        assert_eq!(shape.parts(130..140).collect::<Vec<_>>(), [(Part::Digest(10), 0..10)]);
    }

    proptest! {
        #[test]
        fn parts_cover_every_range_once(head in 16usize..60, content in 0u64..200, a in 0u64..300, b in 0u64..300) {
            let shape = Shape::new(head, content).unwrap();
            let (a, b) = (a.min(shape.stream()), b.min(shape.stream()));
            let range = a.min(b)..a.max(b);
            let mut reached = 0;
            for (part, within) in shape.parts(range.clone()) {
                prop_assert_eq!(within.start, reached);
                reached = within.end;
                let place = match part {
                    Part::Head(at) => at as u64,
                    Part::Content(at) => at + head as u64,
                    Part::Digest(at) => at as u64 + head as u64 + content,
                };
                prop_assert_eq!(place, range.start + within.start as u64);
            }
            prop_assert_eq!(reached as u64, range.end - range.start);
        }
    }
}
