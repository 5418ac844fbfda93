use super::*;

fn entry(path: &str, kind: Kind) -> Entry {
    let metadata = Metadata { mode: 0o4755, mtime_s: -7, mtime_ns: 999_999_999 };
    Entry { path: RelativePath::new(path).unwrap(), kind, metadata }
}

fn body(frame: &[u8]) -> (Head, &[u8]) {
    let (head, body) = frame.split_first_chunk().unwrap();
    let head = Head::decode(*head).unwrap();
    assert_eq!(head.length as usize, body.len());
    (head, body)
}

#[test]
fn frames_come_back_as_they_were() {
    let file = File { file: 7, entry: entry("a/b", Kind::File { size: 1 << 40 }), sparse: true };
    let mut bytes = Vec::new();
    file.encode(&mut bytes);
    assert_eq!(File::decode(body(&bytes).1), Ok(file.clone()));
    assert_eq!(file.size(), 1 << 40);

    let block = Block { file: 7, index: 3, length: 1 << 20 };
    let encoded = block.encode();
    assert_eq!(Block::decode(body(&encoded).1), Ok(block));

    let holes = Holes { file: 7, runs: vec![(0, 3), (3, 1), (9, 1)] };
    bytes.clear();
    holes.encode(&mut bytes);
    assert_eq!(Holes::decode(body(&bytes).1), Ok(holes));
}

#[test]
fn a_pack_carries_names_metadata_and_content_and_an_offer_all_but_content() {
    let items = [
        (entry("d", Kind::Directory), &b""[..]),
        (entry("d/f", Kind::File { size: 5 }), b"hello"),
        (entry("d/empty", Kind::File { size: 0 }), b""),
        (entry("d/l", Kind::Symlink { target: b"../x".to_vec() }), b""),
        (entry("", Kind::Directory), b""),
    ];
    for what in [What::Pack, What::Offer] {
        let mut bytes = vec![1, 2, 3];
        Pack::open(what, 5, &mut bytes);
        for (entry, content) in &items {
            let content = if what == What::Pack { content } else { &b""[..] };
            Pack::add(entry, Digest([4; 32]), content, &mut bytes);
        }
        Pack::close(3, &mut bytes);
        let (head, body) = body(&bytes[3..]);
        assert_eq!(head.what, what);
        let pack = Pack::decode(what, body).unwrap();
        assert_eq!((pack.pack, pack.items.len()), (5, items.len()));
        for (item, (entry, content)) in pack.items.iter().zip(&items) {
            assert_eq!(&item.entry, entry);
            assert_eq!(item.content, if what == What::Pack { content } else { &b""[..] });
        }
    }
}

#[test]
fn blocks_of_a_file_are_few_and_powers_of_two() {
    for (size, bytes) in [(1, 1 << 20), (1 << 38, 1 << 20), ((1 << 38) + 1, 1 << 21), (1 << 47, 1 << 26)] {
        assert_eq!(block_bytes(size), bytes);
    }
}

#[test]
fn hostile_frames_are_refused() {
    assert_eq!(Head::decode([9, 0, 0, 0, 0]), Err(FrameError::Kind { kind: 9 }));
    assert!(matches!(Head::decode([1, 0xff, 0, 0, 0]), Err(FrameError::TooLong { .. })));
    assert!(matches!(Head::decode([6, 0, 0, 0, 1]), Err(FrameError::TooLong { .. })));
    let block = Block { file: 1, index: 0, length: 0 };
    assert!(Block::decode(body(&block.encode()).1).is_err());
    let directory = File { file: 1, entry: entry("d", Kind::Directory), sparse: false };
    let mut bytes = Vec::new();
    directory.encode(&mut bytes);
    assert!(File::decode(body(&bytes).1).is_err());
    for runs in [vec![(1, 0)], vec![(5, 2), (6, 1)], vec![(u32::MAX, 2)]] {
        bytes.clear();
        Holes { file: 1, runs }.encode(&mut bytes);
        assert!(Holes::decode(body(&bytes).1).is_err());
    }
    // A path out of the destination, in place of a good one of the same length.
    bytes.clear();
    File { file: 1, entry: entry("aa/bb", Kind::File { size: 1 }), sparse: false }.encode(&mut bytes);
    let at = bytes.windows(5).position(|window| window == b"aa/bb").unwrap();
    bytes[at..at + 5].copy_from_slice(b"../bb");
    assert!(matches!(File::decode(body(&bytes).1), Err(FrameError::Path(_))));
}

#[test]
fn a_frame_that_was_cut_anywhere_is_refused() {
    let mut bytes = Vec::new();
    Pack::open(What::Pack, 5, &mut bytes);
    Pack::add(&entry("f", Kind::File { size: 5 }), Digest([4; 32]), b"hello", &mut bytes);
    Pack::close(0, &mut bytes);
    let body = &bytes[Head::LEN..];
    for cut in (0..body.len()).filter(|cut| *cut != 4) {
        assert!(Pack::decode(What::Pack, &body[..cut]).is_err(), "{cut}");
    }
}
