//! What sending contexts count.

/// What a context did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pieces.
    pub pieces: u64,
    /// Pieces that were sent again.
    pub retransmits: u64,
    /// Shards of parity.
    pub parities: u64,
    /// Datagrams that were lost.
    pub lost: u64,
    /// Times that nothing was heard in time.
    pub timeouts: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.pieces += other.pieces;
        self.retransmits += other.retransmits;
        self.parities += other.parities;
        self.lost += other.lost;
        self.timeouts += other.timeouts;
    }
}
