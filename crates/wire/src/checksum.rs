//! The Internet checksum (RFC 1071).

/// The ones' complement sum of `bytes` added to `start`, not yet folded or complemented.
///
/// An odd length counts as padded with a zero, so only the last of several parts may be odd.
#[must_use]
pub fn sum(start: u64, bytes: &[u8]) -> u64 {
    // Sixteen-bit words may be added in wider ones and folded at the end: RFC 1071, 2 (A) and (B).
    let mut total = start;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut rest = words.remainder().chunks_exact(2);
    for word in &mut rest {
        total += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = rest.remainder() {
        total += u64::from(*last) << 8;
    }
    total
}

/// `total` as sixteen bits, carries added in; complement it for a checksum field.
#[must_use]
pub fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(0, &bytes)), 0xddf2);
    }

    proptest::proptest! {
        #[test]
        fn does_not_depend_on_where_even_parts_are_cut(
            bytes in proptest::collection::vec(0u8.., 0..200), cut in 0usize..100,
        ) {
            let (head, tail) = bytes.split_at((cut * 2).min(bytes.len() & !1));
            proptest::prop_assert_eq!(fold(sum(sum(0, head), tail)), fold(sum(0, &bytes)));
        }
    }
}
