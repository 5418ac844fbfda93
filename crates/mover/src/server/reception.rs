//! Where clients get a thread each that talks with them, or that tells them why nobody does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

use farlink_wire::message::Message;
use farlink_wire::refusal::{Cause, Refusal};

use super::Event;
use super::session::{Guest, House};
use crate::channel::Channel;
use crate::control::Control;

/// A control connection whose first bytes were right.
pub(super) struct Greeted {
    pub(super) channel: Channel,
    pub(super) guest: Guest,
    pub(super) received: Vec<u8>,
    /// Why nobody talks with it, where that is known already.
    pub(super) refusal: Option<Refusal>,
}

/// Where clients are received.
pub(super) struct Reception<'a> {
    pub(super) house: House,
    observe: &'a (dyn Fn(Event) + Sync),
    talking: AtomicUsize,
    leaving: AtomicUsize,
}

impl<'a> Reception<'a> {
    pub(super) fn new(house: House, observe: &'a (dyn Fn(Event) + Sync)) -> Self {
        Self { house, observe, talking: AtomicUsize::new(0), leaving: AtomicUsize::new(0) }
    }

    /// Says what has happened.
    pub(super) fn observe(&self, event: Event) {
        (self.observe)(event);
    }

    /// Starts to talk with a client, where there are not too many; who is one too many is told.
    pub(super) fn begin<'scope>(&'a self, scope: &'scope Scope<'scope, 'a>, greeted: Greeted) {
        let Greeted { channel, guest, received, refusal } = greeted;
        let from = guest.from;
        let most = 2 * self.house.limits.transfers;
        let place = if refusal.is_none() { Place::among(&self.talking, most) } else { None };
        let session = thread::Builder::new().name("farlink-session".to_owned());
        let begun = if let Some(place) = place {
            session.spawn_scoped(scope, move || {
                let _place = place;
                self.house.host(Control::new(channel, received), &guest, self.observe);
            })
        } else {
            let refusal = refusal.unwrap_or_else(|| crowded(most));
            self.observe(Event::Refused { from, reason: format!("refused: {refusal}") });
            let Some(place) = Place::among(&self.leaving, MOST_LEAVING) else { return };
            session.spawn_scoped(scope, move || {
                let _place = place;
                turn_away(Control::new(channel, received), refusal);
            })
        };
        if let Err(error) = begun {
            self.observe(Event::Failed { from, reason: format!("start a thread: {error}") });
        }
    }
}

/// Tells a client why nobody talks with it, and waits a moment for it to have heard: what it says meanwhile would cut the words off.
fn turn_away(mut control: Control, refusal: Refusal) {
    if control.greet().and_then(|()| control.send(&Message::Refuse(refusal))).is_ok() {
        control.part();
    }
}

fn crowded(most: usize) -> Refusal {
    Refusal::new(Cause::Passing, format!("the server talks with {most} clients already: try again later"))
}

/// One of so many places.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn among(taken: &'a AtomicUsize, most: usize) -> Option<Self> {
        let place = Self(taken);
        (taken.fetch_add(1, Ordering::AcqRel) < most).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Clients at a time that are told why they are turned away. Beyond them the connection is closed without a word.
const MOST_LEAVING: usize = 256;
