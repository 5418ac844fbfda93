//! What comes of a product before its name.

use farlink_wire::cast::packet::Data;

use super::Attendance;

impl Attendance {
    /// Whether a packet of the group can be kept. Otherwise it is as if it had been lost: it comes again when there is a file for it. Not so
    /// what came over the control connection, which the sender sends once.
    pub(super) fn has_room(&self, data: &Data, bytes: usize) -> bool {
        self.items.has_room(data.product, data.shape.content()) && self.is_kept(data, bytes, MOST_EARLY)
    }

    /// Whether there is a file for it, or less than `most` bytes wait for theirs.
    pub(super) fn is_kept(&self, data: &Data, bytes: usize, most: usize) -> bool {
        let is_head = data.offset < u64::from(data.shape.head());
        is_head || self.items.has_begun(data.product) || self.early_bytes + bytes <= most
    }

    pub(super) fn forget_early(&mut self, product: u32) -> Vec<(u64, Vec<u8>)> {
        let early = self.early.remove(&product).unwrap_or_default();
        self.early_bytes -= early.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        early
    }
}

/// Content of products without a name, bytes: of 1 Gb/s 0.13 s, in which a first packet that was lost comes again.
pub(super) const MOST_EARLY: usize = 16 << 20;

/// The same of what comes over the control connection, where a sender repeats heads before the rest.
pub(super) const MOST_EARLY_REPAIRED: usize = 8 * MOST_EARLY;
