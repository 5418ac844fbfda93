//! What the far end is asked for.

use farlink_flow::streams::Path;
use farlink_flow::timetable::Timetable;
use farlink_host::{process, socket};
use farlink_wire::message::copy::{MOST_SOURCES, Place, Request, SavedPath};
use farlink_wire::message::{MAX_MESSAGE, Streams, Token, Way};
use farlink_wire::quantity::Bytes;

use super::Attempt;
use crate::copy::CopyError;
use crate::copy::pattern::is_pattern;
use crate::copy::plan::Plan;
use crate::copy::saved_paths::SavedPaths;
use crate::copy::source::SourcePath;
use crate::facts;
use crate::far::ThisEnd;

impl Attempt<'_> {
    /// Whether the destination can only be a directory.
    pub(super) fn several(&self) -> bool {
        let sources = &self.plan.sources;
        let contents = |place: &Place| {
            SourcePath::new(place.as_bytes()).is_ok_and(|source| source.base_name().is_none())
        };
        let is_far = self.plan.way == Way::Reverse;
        let open = |place: &Place| is_far && is_pattern(place.as_bytes());
        sources.len() > 1 || sources.iter().any(|place| contents(place) || open(place))
    }

    /// What this end knows of the way to the other. The shares of a circuit are fixed before anything is measured.
    pub(in crate::copy) fn this_end(&self, saved: Option<SavedPath>) -> ThisEnd {
        let plan = self.plan;
        let is_open = plan.streams.is_none() && plan.declared.is_none();
        ThisEnd { bind: plan.bind, path: is_open.then(|| path_of(plan, saved)) }
    }

    pub(in crate::copy) fn request(&self, token: Token) -> Request {
        let plan = self.plan;
        let forward = plan.way == Way::Forward;
        let saved = SavedPaths::of(plan).recall();
        Request {
            token,
            way: plan.way,
            sources: if forward { Vec::new() } else { plan.sources.clone() },
            destination: forward.then(|| plan.destination.clone()),
            several: self.several(),
            key: Token(self.names.key),
            command: Some(Token(self.names.command)),
            resume: self.resume,
            update: plan.update,
            dry_run: false,
            rules: if forward { Vec::new() } else { self.rules.to_vec() },
            names: plan.names.clone().filter(|_| !forward),
            length: plan.length,
            protect: plan.protect,
            secret: None,
            verify: plan.verify,
            fsync: plan.fsync,
            read_back: plan.read_back,
            limit: plan.limit_now(),
            streams: plan.streams.unwrap_or_else(|| first_streams(plan, saved)),
            congestion: plan.congestion.clone(),
            declared: plan.declared,
            buffer: plan.buffer,
            saved,
            interval: plan.interval,
            patience: plan.patience,
            host: facts::host(),
        }
    }
}

/// Refuses what the far end would not read, before anybody is called.
pub(in crate::copy) fn check(request: &Request) -> Result<(), CopyError> {
    if request.sources.len() > MOST_SOURCES {
        return Err(CopyError::ManySources { count: request.sources.len(), most: MOST_SOURCES });
    }
    let bytes = serde_json::to_vec(request).map_or(0, |words| words.len());
    // What is around it, and added to it later, is short.
    let most = MAX_MESSAGE - 1024;
    if bytes > most { Err(CopyError::LongRequest { bytes, most }) } else { Ok(()) }
}

/// Connections of a circuit where nobody asked for a number, since their shares of the rate are fixed: one reads while the other sends.
pub const CIRCUIT_STREAMS: u32 = 2;

/// Connections that are opened at once where nobody asked for a number.
fn first_streams(plan: &Plan, saved: Option<SavedPath>) -> Streams {
    let count = match saved {
        _ if plan.declared.is_some() => CIRCUIT_STREAMS,
        // They are counted again when the round trip is known.
        Some(SavedPath { rtt, .. }) => Path { rtt: Some(rtt), ..path_of(plan, saved) }.streams().get().into(),
        None => path_of(plan, saved).first().get().into(),
    };
    Streams::try_from(count).unwrap_or_else(|_| unreachable!("it is within the bounds of streams"))
}

/// What is known before anything is measured. Both ends have the settings of this one, as far as it knows.
fn path_of(plan: &Plan, saved: Option<SavedPath>) -> Path {
    let window = plan.buffer.map(|buffer| buffer.get().into()).or_else(socket::greatest_window).map(Bytes);
    Path {
        rtt: None,
        rate: plan.limit.as_ref().and_then(Timetable::greatest),
        window,
        cores: process::cores(),
        is_known: saved.is_some(),
    }
}
