//! What a receiver has counted.

/// What came, and what of it in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that were there already.
    pub duplicates: u64,
    /// Packets that fit no product of this session.
    pub misfits: u64,
    /// Bytes of streams that came, but for duplicates.
    pub bytes: u64,
    /// Of these, bytes that were rebuilt or sent again.
    pub repaired: u64,
    /// Of these, bytes that were [there](super::Receiver::on_found) from an earlier attempt.
    pub found: u64,
    /// Frames with NACKs.
    pub nacks: u64,
    /// Products that are stored.
    pub stored: u32,
    /// Of these, products that a newer one of their name replaced first.
    pub superseded: u32,
    /// Products that will not be.
    pub failed: u32,
    /// Of those stored, products that were gone before.
    pub caught_up: u32,
}

impl Tally {
    /// What of it came after another had been taken of the same receiver.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            duplicates: self.duplicates - before.duplicates,
            misfits: self.misfits - before.misfits,
            bytes: self.bytes - before.bytes,
            repaired: self.repaired - before.repaired,
            found: self.found - before.found,
            nacks: self.nacks - before.nacks,
            stored: self.stored - before.stored,
            superseded: self.superseded - before.superseded,
            failed: self.failed - before.failed,
            caught_up: self.caught_up - before.caught_up,
        }
    }
}
