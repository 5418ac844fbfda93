//! How a session ends, and what is said of that.

use farlink_wire::cast::control::{Control, Words};
use farlink_wire::message::Text;

use super::Session;
use crate::products::NotSent;
use crate::send::{Finished, Notice};

impl Session<'_> {
    /// Nothing more is to appear.
    pub(super) fn cease(&mut self, tell: &mut dyn FnMut(Notice<'_>)) {
        self.ceased = true;
        let lacks = &mut self.lacks;
        self.products.cease(&mut |not_sent| {
            *lacks |= not_sent.failed;
            tell(Notice::NotSent(not_sent));
        });
    }

    /// Says how much of what was found in a directory that was watched, and of what was named beside it, nobody was there for; whether there is any of
    /// that.
    pub(super) fn tell_unsent(&mut self, tell: &mut dyn FnMut(Notice<'_>)) -> bool {
        let Some(directory) = &self.plan.watch else { return false };
        // Of what was named nothing is said where nothing was begun: then it is interrupted.
        let named = if self.has_begun { self.products.unwalked(MOST_COUNTED) } else { 0 };
        let watched = self.machine.unsent() + self.products.waiting();
        let path = directory.to_string().trim_end_matches('/').to_owned();
        let why =
            if self.has_begun { "no receiver is there" } else { "fewer receivers came than are waited for" };
        for (count, of) in [(watched, ""), (named, " that were named beside it, and")] {
            if count > 0 {
                self.lacks = true;
                let more = if count == MOST_COUNTED { "or more " } else { "" };
                let files = if count == 1 { "file" } else { "files" };
                let reason = format!("{count} {more}{files}{of} whose turn had not come: {why}");
                tell(Notice::NotSent(NotSent { path: path.clone(), reason, failed: true }));
            }
        }
        watched + named > 0
    }

    /// Nothing was sent, and nothing was to be: receivers have all of that.
    pub(super) fn end_of_nothing(&mut self) {
        let end = Control::Words(Words::End { products: 0 });
        for (receiver, peer) in &mut self.progress.peers {
            peer.is_short = false;
            self.outbox.say(*receiver, &end);
        }
    }

    /// Tells every receiver that nothing more comes of what was begun, and why. One whose session had not begun finds the next there.
    pub(super) fn break_off(&self, reason: String) {
        if !self.has_begun {
            return;
        }
        let broken = Control::Words(Words::BreakOff(Text::from(reason)));
        self.outbox.break_off();
        for receiver in self.progress.peers.keys() {
            self.outbox.say(*receiver, &broken);
        }
    }

    /// What came of it.
    pub(super) fn conclude(&mut self, finished: &mut Finished) {
        let there: Vec<_> = self.progress.peers.keys().copied().collect();
        there.into_iter().for_each(|receiver| self.look_at(receiver));
        self.progress.totals = self.machine.totals();
        self.progress.unsent = (self.machine.unsent() as u32, self.machine.unsent_bytes());
        self.progress.rate = Some(self.tempo.rate());
        finished.progress = std::mem::take(&mut self.progress);
        finished.lacks |= self.lacks;
        finished.interrupted = self.interrupted;
    }
}

/// Files that are counted which nobody walked to: a disk has them in a second or two.
const MOST_COUNTED: usize = 100_000;

/// Why a session that its user ended is broken off.
pub(super) const INTERRUPTED: &str = "it was interrupted there";
