//! How a process ends: it sees what it said out of the house, and says farewell.

use farlink_wire::quantity::Nanos;

use super::Endpoint;
use crate::fabric::operation::Failure;

impl Endpoint {
    /// The process ends as soon as it [is quiet](Self::is_quiet).
    pub fn on_ending(&mut self) {
        self.relays.on_ending();
        self.messages.on_ending();
    }

    /// Whether everything that was sent has arrived, so that the process may go. What was offered and nobody took does not count, but for
    /// what the application was told is sent.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let all_left = self.messages.is_quiet() && !self.relays.repeats();
        all_left && self.contexts.is_drained() && !self.neighbours.has_talking()
    }

    /// Whether a process of this host is still to take what this one was told is sent. It lives, however long it says nothing: otherwise it
    /// would have failed.
    #[must_use]
    pub fn owes_neighbours(&self) -> bool {
        // To one that failed nothing is owed.
        self.peers.near().any(|peer| self.messages.owes_copies(peer))
    }

    /// Whether something is under way to other hosts, and they have said nothing of any of it for so long.
    #[must_use]
    pub fn is_mute(&self, now: Nanos, silence: Nanos) -> bool {
        self.contexts.are_mute(now, silence)
    }

    /// Says farewell to peers far away: one datagram each, or two where datagrams are lost. Those that were given up may live.
    pub fn on_close(&mut self, now: Nanos) {
        let ended = |peer| self.messages.failure(peer) == Some(Failure::Ended);
        let known = self.peers.acquaintances().filter(|(peer, _)| !ended(*peer));
        self.contexts.say_farewell(now, known, |peer| self.relays.sent(peer));
    }

    /// When the next farewell may leave; none where all have left.
    #[must_use]
    pub fn next_word(&self) -> Option<Nanos> {
        self.contexts.next_word()
    }
}
