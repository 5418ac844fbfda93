//! Frames of several packets, some of which were there: in any order, each byte is written once.

use std::ops::Range;

use farlink_flow::cast::receiver::{Config, Event, Receiver};
use farlink_wire::cast::control::BlockPackets;
use farlink_wire::cast::packet::Data;
use farlink_wire::cast::{Payload, Position};
use farlink_wire::quantity::Nanos;
use proptest::prelude::*;

use crate::product::Product;

const PAYLOAD: u16 = 256;

/// One that takes part from the beginning.
pub(crate) fn receiver() -> Receiver {
    let config = Config {
        payload: Payload::try_from(PAYLOAD).unwrap(),
        block: BlockPackets::default(),
        first: 0,
        forgotten: 0,
        position: Position { product: 0, offset: 0 },
        pace: Nanos(1_000_000),
        grace: Nanos(1_000_000),
        seed: 1,
    };
    Receiver::new(config, Nanos::ZERO)
}

/// What a receiver has written, and how often each byte of it.
struct Written {
    content: Vec<u8>,
    times: Vec<u8>,
}

/// Hands it some packets of the product, in one frame.
fn hand(
    receiver: &mut Receiver,
    product: &Product,
    written: &mut Written,
    packets: Range<u64>,
    repair: bool,
) {
    let payload = u64::from(PAYLOAD);
    let range = packets.start * payload..(packets.end * payload).min(product.shape.stream());
    let data = Data { product: 0, shape: product.shape, offset: range.start, repair };
    let bytes = product.read(&product.content(), range);
    for write in receiver.on_data(Nanos(1), &data, &bytes) {
        let new = &bytes[write.payload];
        let place = write.at as usize..write.at as usize + new.len();
        written.content[place.clone()].copy_from_slice(new);
        written.times[place].iter_mut().for_each(|times| *times += 1);
    }
}

proptest! {
    #[test]
    fn each_byte_is_written_once_whatever_of_a_frame_was_there(
        content in 0u64..10_000,
        frames in proptest::collection::vec((0u64..40, 1u64..=16, any::<bool>()), 0..60),
    ) {
        let product = Product::new("a", content, Some(content));
        let count = product.shape.packets(Payload::try_from(PAYLOAD).unwrap());
        let mut receiver = receiver();
        let mut written = Written { content: vec![0; content as usize], times: vec![0; content as usize] };
        let frames = frames.into_iter().map(|(start, length, repair)| (start..start + length, repair));
        // The last one has everything, so that nothing is lacking.
        for (packets, repair) in frames.chain(std::iter::once((0..count, true))) {
            let packets = packets.start.min(count - 1)..packets.end.min(count);
            hand(&mut receiver, &product, &mut written, packets, repair);
            prop_assert!(written.times.iter().all(|times| *times <= 1));
            let there = written.times.iter().filter(|times| **times == 1).count() as u64;
            let around = product.shape.stream() - content;
            prop_assert!((there..=there + around).contains(&receiver.tally().bytes));
        }
        prop_assert_eq!(&written.content, &product.content());
        prop_assert!(written.times.iter().all(|times| *times == 1));
        prop_assert_eq!(receiver.tally().bytes, product.shape.stream());
        let events: Vec<_> = std::iter::from_fn(|| receiver.poll(Nanos(2))).collect();
        let complete = events.iter().filter(|event| matches!(event, Event::Complete { .. })).count();
        prop_assert_eq!(complete, 1);
        receiver.on_checked(Nanos(3), 0, true);
        hand(&mut receiver, &product, &mut written, 0..count, true);
        prop_assert!(written.times.iter().all(|times| *times == 1));
        prop_assert_eq!((receiver.tally().stored, receiver.tally().bytes), (1, product.shape.stream()));
    }
}
