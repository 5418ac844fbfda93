use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// Contexts that take pieces and bring them to peers, as an endpoint has them.
struct Model {
    dc: Dc,
    most: usize,
    next_context: u32,
    contexts: BTreeMap<ContextId, Context>,
    peers: BTreeMap<PeerId, Peer>,
}

struct Context {
    peer: PeerId,
    under_way: VecDeque<u32>,
}

#[derive(Default)]
struct Peer {
    /// Pieces that were ever said, are not yet sent, and came, in this order.
    said: u32,
    unsent: u32,
    came: Vec<u32>,
    /// The context that was opened to it last: what came of an earlier one would be refused.
    last: Option<ContextId>,
    is_gone: bool,
}

impl Model {
    fn new(settings: Settings) -> Self {
        Self {
            dc: Dc::new(settings, 7),
            most: settings.initiators.count().into(),
            next_context: 0,
            contexts: BTreeMap::new(),
            peers: BTreeMap::new(),
        }
    }

    fn say(&mut self, peer: u32, pieces: u32) {
        let each = self.peers.entry(PeerId(peer)).or_default();
        if !each.is_gone {
            each.said += pieces;
            each.unsent += pieces;
            self.serve(PeerId(peer));
        }
    }

    /// Closes what is needed no more.
    fn close_retired(&mut self) {
        while let Some(context) = self.dc.poll_retired() {
            let closed = self.contexts.remove(&context);
            assert!(closed.is_none_or(|each| each.under_way.is_empty() || self.peers[&each.peer].is_gone));
        }
    }

    /// Sends what a peer's initiator takes: whether that was anything.
    fn serve(&mut self, peer: PeerId) -> bool {
        let mut sent = false;
        while self.peers[&peer].unsent > 0 {
            let routing = self.dc.route(peer);
            self.close_retired();
            match routing {
                Routing::Wait => return sent,
                Routing::Yield(context) => {
                    assert_eq!(self.peers[&peer].last, Some(context));
                    return sent;
                }
                Routing::Open { to, instead_of, .. } => {
                    assert_eq!(to, peer);
                    if let Some(before) = instead_of.and_then(|before| self.contexts.remove(&before)) {
                        assert!(before.under_way.is_empty() || self.peers[&before.peer].is_gone);
                    }
                    let context = ContextId(self.next_context);
                    self.next_context += 1;
                    self.contexts.insert(context, Context { peer, under_way: VecDeque::new() });
                    assert!(self.contexts.len() <= self.most + self.dc.counts().lent as usize);
                    self.peers.get_mut(&peer).unwrap().last = Some(context);
                    self.dc.on_opened(context, peer);
                }
                Routing::Take(context) => {
                    let others =
                        self.contexts.iter().filter(|(each, of)| **each != context && of.peer == peer);
                    assert!(others.into_iter().all(|(_, of)| of.under_way.is_empty()), "on two at once");
                    let to = self.contexts.get_mut(&context).unwrap();
                    assert_eq!(to.peer, peer);
                    if to.under_way.len() >= WINDOW {
                        return sent;
                    }
                    let each = self.peers.get_mut(&peer).unwrap();
                    assert_eq!(each.last, Some(context));
                    to.under_way.push_back(each.said - each.unsent);
                    each.unsent -= 1;
                    sent = true;
                    self.dc.on_pushed(context, peer);
                }
            }
        }
        self.dc.on_said(peer);
        self.close_retired();
        sent
    }

    /// Peers whose pieces wait are asked again.
    fn serve_all(&mut self) -> bool {
        self.close_retired();
        let waiting: Vec<PeerId> =
            self.peers.iter().filter(|(_, peer)| peer.unsent > 0).map(|(peer, _)| *peer).collect();
        // Not in the order of the line.
        waiting.into_iter().rev().filter(|peer| self.serve(*peer)).count() > 0
    }

    /// So many pieces of a context arrive.
    fn arrive(&mut self, context: ContextId, pieces: usize) {
        let Some(from) = self.contexts.get_mut(&context) else { return };
        let pieces = pieces.min(from.under_way.len());
        self.peers.get_mut(&from.peer).unwrap().came.extend(from.under_way.drain(..pieces));
        if pieces > 0 && from.under_way.is_empty() {
            self.dc.on_drained(context);
        }
        self.serve_all();
    }

    fn of(&self, peer: u32) -> ContextId {
        let mut contexts = self.contexts.iter().filter(|(_, of)| of.peer == PeerId(peer));
        *contexts.find(|(_, of)| !of.under_way.is_empty()).unwrap().0
    }

    fn came(&self, peer: u32) -> usize {
        self.peers[&PeerId(peer)].came.len()
    }

    fn fail(&mut self, context: ContextId) -> Vec<PeerId> {
        let Some(failed) = self.contexts.remove(&context) else { return Vec::new() };
        let peers = self.dc.on_failed(context);
        assert_eq!(peers, [failed.peer]);
        peers.iter().for_each(|peer| self.gone(*peer));
        self.serve_all();
        peers
    }

    fn gone(&mut self, peer: PeerId) {
        if let Some(each) = self.peers.get_mut(&peer) {
            (each.unsent, each.is_gone) = (0, true);
        }
    }

    /// What a context has under way is not answered.
    fn silence(&mut self, context: ContextId) {
        self.dc.on_silent(context);
        self.serve_all();
    }

    fn forget(&mut self, peer: PeerId) {
        self.gone(peer);
        self.dc.on_gone(peer);
        self.serve_all();
    }

    /// What was meant for a peer goes another way.
    fn withdraw(&mut self, peer: PeerId) {
        if let Some(each) = self.peers.get_mut(&peer) {
            each.said -= std::mem::take(&mut each.unsent);
            self.dc.on_said(peer);
            self.serve_all();
        }
    }

    /// All that is under way arrives, until nothing is.
    fn finish(&mut self) {
        loop {
            let sent = self.serve_all();
            let under_way: Vec<ContextId> = self
                .contexts
                .iter()
                .filter(|(_, of)| !of.under_way.is_empty() && !self.peers[&of.peer].is_gone)
                .map(|(context, _)| *context)
                .collect();
            if under_way.is_empty() && !sent {
                break;
            }
            for context in under_way {
                self.arrive(context, usize::MAX);
            }
        }
        for (peer, each) in &self.peers {
            assert!(each.is_gone || each.came.len() == each.said as usize, "{peer:?} still waits");
            assert!(each.came.is_sorted(), "{peer:?}: {:?}", each.came);
        }
        assert!(self.dc.given.is_empty(), "whoever is silent has no initiator: {:?}", self.dc.given);
        assert!(self.dc.pool.iter().all(|state| state.owner.is_none() && state.pieces == 0));
        self.close_retired();
        assert!(self.contexts.len() <= self.most, "a stand-in goes when its silent one drains");
        for state in 0..self.most {
            assert_eq!(self.dc.queue.first(Initiator(state as u16)), None);
        }
    }
}

const WINDOW: usize = 5;

fn settings(initiators: u16, policy: PolicyKind, quota: u32) -> Settings {
    let (initiators, quota) = (Initiators::new(initiators).unwrap(), NonZeroU32::new(quota).unwrap());
    Settings { initiators, policy, quota, full_handshake: false }
}

fn named(policy: &str) -> PolicyKind {
    policy.parse().unwrap()
}

#[derive(Clone, Debug)]
enum Event {
    Say(u32, u32),
    Arrive(usize, usize),
    Silent(usize),
    Fail(usize),
    Gone(u32),
    Withdraw(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..8_u32, 1..12_u32).prop_map(|(peer, pieces)| Event::Say(peer, pieces)),
        8 => (0..8_usize, 1..9_usize).prop_map(|(context, pieces)| Event::Arrive(context, pieces)),
        2 => (0..8_usize).prop_map(Event::Silent),
        1 => (0..8_usize).prop_map(Event::Fail),
        1 => (0..8_u32).prop_map(Event::Gone),
        1 => (0..8_u32).prop_map(Event::Withdraw),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_happens_nobody_waits_for_ever_and_pieces_keep_their_order(
        kind in 0..5_usize,
        initiators in 1..5_u16,
        quota in 1..5_u32,
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut model = Model::new(settings(initiators, PolicyKind::all().nth(kind).unwrap(), quota));
        for event in events {
            let nth = |at: usize| model.contexts.keys().nth(at % model.contexts.len().max(1)).copied();
            match event {
                Event::Say(peer, pieces) => model.say(peer, pieces),
                Event::Arrive(at, pieces) => nth(at).into_iter().for_each(|each| model.arrive(each, pieces)),
                Event::Silent(at) => nth(at).into_iter().for_each(|each| model.silence(each)),
                Event::Fail(at) => nth(at).into_iter().for_each(|each| drop(model.fail(each))),
                Event::Gone(peer) => model.forget(PeerId(peer)),
                Event::Withdraw(peer) => model.withdraw(PeerId(peer)),
            }
        }
        model.finish();
        let counts = model.dc.counts();
        prop_assert!(counts.disconnects <= counts.connects);
        prop_assert_eq!(counts.connects, u64::from(model.next_context));
    }
}

#[test]
fn many_peers_share_few_initiators() {
    for kind in PolicyKind::all() {
        let mut model = Model::new(settings(2, kind, 8));
        for peer in 0..40 {
            model.say(peer, 100);
        }
        model.finish();
        let counts = model.dc.counts();
        assert!(counts.waits >= 38 && counts.connects >= 40, "{kind}: {counts:?}");
        assert_eq!(counts.connects - counts.disconnects, 2, "{kind}");
    }
}

#[test]
fn more_initiators_than_a_byte_has_numbers() {
    for count in [127_u16, 128, 255, 256, 257, 1024] {
        let mut model = Model::new(settings(count, named("dcs"), 32));
        for peer in 0..=u32::from(count) {
            model.say(peer, 1);
        }
        let contexts: BTreeSet<ContextId> = (0..count).map(|peer| model.of(peer.into())).collect();
        assert_eq!((contexts.len(), model.contexts.len()), (count.into(), count.into()));
        assert_eq!(model.dc.counts(), Counts { connects: count.into(), waits: 1, ..Counts::default() });
        model.arrive(model.of(u32::from(count) - 1), 1);
        assert_eq!(model.of(count.into()).0, u32::from(count));
        model.finish();
    }
    assert_eq!([0, 1025].map(Initiators::new), [None, None]);
}

#[test]
fn one_that_never_pauses_starves_others_of_dcs_alone() {
    for kind in PolicyKind::all() {
        let mut model = Model::new(settings(1, kind, 8));
        model.say(0, 10_000);
        model.say(1, 1);
        // There is always something under way to the first.
        for _ in 0..1000 {
            if model.came(1) > 0 {
                break;
            }
            model.arrive(*model.contexts.keys().next().unwrap(), 1);
        }
        let after = model.came(0);
        if kind == named("dcs") {
            assert_eq!((after, model.came(1)), (1000, 0));
        } else {
            assert_eq!((after, model.came(1)), (8, 1), "{kind}");
        }
        model.finish();
    }
}

#[test]
fn who_makes_place_is_not_given_another_initiator_before_all_has_arrived() {
    let mut model = Model::new(settings(2, named("dcs_quota"), 3));
    model.say(0, 10);
    model.say(1, 1);
    model.say(2, 1);
    assert_eq!(model.dc.queue.first(Initiator(0)), Some(PeerId(2)));
    model.arrive(model.of(0), 2);
    assert_eq!((model.came(0), model.dc.route(PeerId(0))), (2, Routing::Yield(model.of(0))));
    // Peer 2 takes over from peer 1. Now the second initiator is idle, but the first still carries peer 0's.
    model.arrive(model.of(1), 1);
    model.arrive(model.of(2), 1);
    let two = model.contexts.values().filter(|context| context.peer == PeerId(0)).count();
    assert_eq!((two, model.came(2)), (1, 1));
    model.finish();
}

#[test]
fn a_peer_without_frames_has_no_initiator_and_no_place() {
    // Each of 30 peers says something, and then waits for a credit that comes after all others were served.
    for kind in PolicyKind::all() {
        let mut model = Model::new(settings(1, kind, 4));
        for peer in 0..30 {
            model.say(peer, 2);
            model.arrive(model.of(peer), 2);
            assert!(model.dc.given.is_empty() && model.dc.queue.first(Initiator(0)).is_none());
        }
        model.say(0, 1);
        for peer in 1..30 {
            model.say(peer, 1);
            // What it had to say goes another way: it keeps nobody waiting.
            match peer % 3 {
                0 => model.withdraw(PeerId(peer)),
                1 => model.forget(PeerId(peer)),
                _ => {}
            }
        }
        model.finish();
        assert!((1..30).filter(|peer| peer % 3 == 2).all(|peer| model.came(peer) == 3), "{kind}");
    }
}

#[test]
fn one_peers_failure_is_not_that_of_others_that_share_its_initiator() {
    for kind in PolicyKind::all() {
        let mut model = Model::new(settings(1, kind, 4));
        for peer in 0..4 {
            model.say(peer, 3);
        }
        assert_eq!(model.fail(model.of(0)), [PeerId(0)]);
        model.arrive(model.of(1), 3);
        // The next has the initiator, and the idle connection to the one before fails late.
        let idle = *model.contexts.keys().next().unwrap();
        assert_eq!(model.contexts[&idle].peer, PeerId(2));
        model.finish();
        assert_eq!([0, 1, 2, 3].map(|peer| model.came(peer)), [0, 3, 3, 3], "{kind}");
    }
    let mut dc = Dc::new(settings(1, named("static"), 4), 0);
    let open = |dc: &mut Dc, context, peer| {
        let Routing::Open { instead_of, .. } = dc.route(PeerId(peer)) else { panic!() };
        dc.on_opened(ContextId(context), PeerId(peer));
        dc.on_pushed(ContextId(context), PeerId(peer));
        instead_of
    };
    assert_eq!(open(&mut dc, 0, 5), None);
    assert_eq!(dc.route(PeerId(6)), Routing::Wait);
    dc.on_said(PeerId(5));
    dc.on_drained(ContextId(0));
    // It is peer 6's now, whatever is heard of before, and still leads to peer 5: that is who cannot be reached.
    dc.on_drained(ContextId(0));
    assert_eq!(dc.route(PeerId(7)), Routing::Wait);
    assert_eq!(dc.on_failed(ContextId(0)), [PeerId(5)]);
    assert_eq!(open(&mut dc, 0, 6), None);
    assert_eq!(dc.route(PeerId(6)), Routing::Take(ContextId(0)));
}

#[test]
fn in_place_of_a_silent_initiator_another_is_lent_while_somebody_waits() {
    for kind in PolicyKind::all() {
        let mut model = Model::new(settings(1, kind, 4));
        (0..3).for_each(|peer| model.say(peer, 3));
        let silent = model.of(0);
        model.silence(silent);
        assert_eq!((model.contexts.len(), model.dc.counts().lent), (2, 1), "{kind}");
        // One after another, and the first of them is silent, too.
        let first = model.of(1);
        model.silence(first);
        model.arrive(model.of(2), 3);
        assert_eq!([0, 1, 2].map(|peer| model.came(peer)), [0, 0, 3], "{kind}");
        model.say(3, 3);
        model.arrive(model.of(3), 3);
        assert_eq!((model.came(3), model.dc.counts().lent), (3, 2), "{kind}");
        // What drains, or fails, has nobody stand in for it any more.
        model.arrive(first, 3);
        model.say(4, 1);
        model.arrive(model.of(4), 1);
        model.fail(silent);
        model.close_retired();
        assert!(model.contexts.len() <= 1, "{kind}");
        model.say(5, 3);
        assert_eq!((model.contexts.len(), model.dc.counts().lent), (1, 2), "{kind}");
        model.finish();
    }
}

#[test]
fn a_peer_that_is_gone_gives_back_what_never_arrived() {
    let mut model = Model::new(settings(1, named("lru"), 4));
    model.say(0, 3);
    model.say(1, 3);
    let before = model.of(0);
    model.forget(PeerId(0));
    assert!(!model.contexts.contains_key(&before));
    model.finish();
    assert_eq!(model.dc.counts(), Counts { connects: 2, disconnects: 1, waits: 1, lent: 0 });
}

#[test]
fn idle_connections_are_kept_and_found_again_by_lru() {
    let connects = |policy| {
        let mut model = Model::new(settings(4, named(policy), 4));
        for at in 0..300 {
            let peer = at * 7 % 4;
            model.say(peer, 1);
            if at % 3 == 2 {
                model.finish();
            }
        }
        model.finish();
        model.dc.counts().connects
    };
    assert_eq!((connects("lru"), connects("static")), (4, 4));
    assert!(connects("dcs") > 100);
}

#[test]
fn an_earlier_connection_to_a_peer_is_not_used_again() {
    let mut model = Model::new(settings(2, named("dcs"), 4));
    let say = |model: &mut Model, peer| {
        model.say(peer, 1);
        let context = model.of(peer);
        model.arrive(context, 1);
        context
    };
    model.say(0, 1);
    model.say(1, 1);
    let (first, other) = (model.of(0), model.of(1));
    model.arrive(first, 1);
    model.arrive(other, 1);
    // It finds the other initiator, which then serves someone else: what is left leads to it already, by a number of before.
    assert!(say(&mut model, 0) > other);
    model.say(2, 1);
    assert!(say(&mut model, 0) > first);
    assert!(!model.contexts.contains_key(&first));
    model.finish();
}

#[test]
fn a_full_handshake_is_made_once_a_connection() {
    let mut dc = Dc::new(Settings { full_handshake: true, ..settings(1, named("lru"), 4) }, 0);
    let open = |peer, instead_of| Routing::Open { to: PeerId(peer), handshake: Handshake::Full, instead_of };
    assert_eq!(dc.route(PeerId(3)), open(3, None));
    dc.on_opened(ContextId(9), PeerId(3));
    // It waits to be admitted: others do not take it away.
    assert_eq!(dc.route(PeerId(4)), Routing::Wait);
    assert_eq!(dc.route(PeerId(3)), Routing::Take(ContextId(9)));
    dc.on_pushed(ContextId(9), PeerId(3));
    dc.on_said(PeerId(3));
    assert_eq!(dc.route(PeerId(4)), Routing::Wait);
    dc.on_drained(ContextId(9));
    assert_eq!(dc.route(PeerId(4)), open(4, Some(ContextId(9))));
}
