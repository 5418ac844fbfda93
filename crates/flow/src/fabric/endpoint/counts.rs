//! What an endpoint counts.

/// What came and was dropped, and what failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) datagrams_sent: u64,
    pub(super) datagrams_received: u64,
    pub(super) refused: u64,
    /// Those of them of which it was looked at where they come from.
    pub(super) looked_at: u64,
    pub(super) other_versions: u64,
    pub(super) nonsense: u64,
    pub(super) forwarded: u64,
    pub(super) failed_peers: u64,
    /// Those of them whose end was told or seen at once, where the others were silent.
    pub(super) ended_peers: u64,
}

impl Counts {
    /// By name.
    pub(super) fn statistics(self) -> Vec<(&'static str, u64)> {
        vec![
            ("datagrams_sent", self.datagrams_sent),
            ("datagrams_received", self.datagrams_received),
            ("datagrams_refused", self.refused),
            ("datagrams_of_other_versions", self.other_versions),
            ("nonsense", self.nonsense),
            ("forwarded", self.forwarded),
            ("failed_peers", self.failed_peers),
            ("ended_peers", self.ended_peers),
        ]
    }
}
