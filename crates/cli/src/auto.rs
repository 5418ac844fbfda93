//! `--auto`: what a transfer asks for is chosen by a profile model that `farlink lab advise --save` wrote.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use farlink_host::congestion::{self, CongestionError};
use farlink_wire::message::{Block, Buffer, Goal, Name, Streams, Way};
use farlink_wire::profile_model::{Configuration, Expected, ProfileModel, Wishes};
use farlink_wire::quantity::{BitsPerSec, Nanos};

/// The model in `file`, or in its usual place.
pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<ProfileModel> {
    let path = file.map_or_else(usual_place, |file| Ok(file.to_owned()))?;
    let shown = path.display();
    let known = fs::metadata(&path);
    if known.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        bail!("--auto: no profile model at {shown}: write one with `farlink lab advise DIR --save {shown}`");
    }
    let known = known.with_context(|| format!("--auto: {shown}"))?;
    // A device or a pipe could be read for ever.
    if !known.is_file() || known.len() > MOST_BYTES {
        bail!("--auto: {shown} is no profile model: name a file that `farlink lab advise --save` wrote");
    }
    let text = fs::read_to_string(&path).with_context(|| format!("--auto: {shown}"))?;
    ProfileModel::parse(&text).with_context(|| format!("--auto: {shown}"))
}

/// What a transfer asks for.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) congestion: Option<Name>,
    pub(crate) declared: Option<BitsPerSec>,
    pub(crate) streams: Streams,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) block: Option<Block>,
    pub(crate) reason: String,
}

/// Who asks a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mover {
    /// As models name it.
    pub(crate) name: &'static str,
    /// Of its data, as records have it.
    pub(crate) protection: &'static str,
}

/// What `wishes` say and, where they leave it open, the model: for `goal` of `mover` in direction `way` over a round trip of `rtt`.
pub(crate) fn choose(
    mover: Mover,
    goal: Goal,
    way: Way,
    wishes: &Wishes,
    model: &ProfileModel,
    rtt: Nanos,
) -> anyhow::Result<Choice> {
    // What is told is a tenth of a millisecond.
    let shown = if rtt.0 < SHOWN { rtt } else { Nanos((rtt.0 + SHOWN / 2) / SHOWN * SHOWN) };
    let ranked = |wishes: &Wishes| {
        let measure =
            "measure it and save the model again, or choose yourself, as in --congestion cubic --streams 10";
        model.ranked(rtt, goal, wishes).map_err(|error| anyhow!("--auto: {error}: {measure}"))
    };
    let fitting = ranked(wishes)?;
    let is_met = !fitting.is_empty();
    let mut candidates = if is_met { fitting } else { ranked(&Wishes::default())? };
    let is_circuit_best = candidates.first().is_some_and(|best| best.configuration.declared.is_some());
    if wishes.declared.is_none() {
        // A rate is declared by who has it guaranteed, and not by what was measured elsewhere.
        candidates.retain(|one| one.configuration.declared.is_none());
    }
    if candidates.is_empty() {
        bail!(
            "--auto: the model has circuits alone, and a circuit holds a rate that is yours: {NAME_THE_RATE}"
        );
    }
    let (best, mut refused) = first_to_be_had(&candidates, way, wishes)?;
    if is_circuit_best && wishes.declared.is_none() {
        refused.insert(0, format!("not circuit, which it expects more of: {NAME_THE_RATE}"));
    }
    let had = best.configuration;
    let congestion = match &wishes.declared {
        Some(_) => Some(Name::try_from("circuit".to_owned())?),
        None => wishes.congestion.clone().or_else(|| had.congestion.clone()),
    };
    Ok(Choice {
        congestion,
        declared: wishes.declared,
        streams: wishes.streams.unwrap_or(had.streams),
        // A circuit brings its own buffers where nobody says otherwise: those of another configuration may be less than its window.
        buffer: wishes.buffer.or(had.buffer.filter(|_| wishes.declared.is_none() || had.declared.is_some())),
        block: wishes.block.or(had.block),
        reason: reason(model, &best, candidates.len(), goal, shown, is_met, &refused)
            + &mover.assumed_of(model),
    })
}

impl Mover {
    /// What it takes for granted where it chooses by runs of another mover, or of data that were protected otherwise.
    fn assumed_of(self, model: &ProfileModel) -> String {
        let mut text = String::new();
        let (with, protection) = (model.measured_with(), model.protection());
        if with != self.name {
            text += &format!("; measured with {with}: that {} reaches as much is assumed", self.name);
        }
        if let Some(other) = protection.filter(|other| *other != self.protection) {
            text +=
                &format!("; measured with data {other}: that {} costs no more is assumed", self.protection);
        }
        text
    }
}

/// The best that this host's kernel has, and why not those before it. What a far end that sends has, only it knows.
fn first_to_be_had<'a>(
    candidates: &[Expected<'a>],
    way: Way,
    wishes: &Wishes,
) -> anyhow::Result<(Expected<'a>, Vec<String>)> {
    let mut refused = Vec::<String>::new();
    let is_chosen = wishes.congestion.is_some() || wishes.declared.is_some();
    for candidate in candidates {
        let name = candidate.configuration.congestion.as_ref().map(Name::as_str);
        let Some(name) = name.filter(|_| way == Way::Forward && !is_chosen) else {
            return Ok((*candidate, refused));
        };
        // What the kernel has it may keep for root.
        let usable = congestion::ensure(name).and_then(|_loaded| match congestion::is_allowed(name) {
            true => Ok(()),
            false => Err(CongestionError::Forbidden { name: name.to_owned() }),
        });
        match usable {
            Ok(()) => return Ok((*candidate, refused)),
            Err(error) => {
                let why = format!("not {name}: {}", error.reason());
                if !refused.contains(&why) {
                    refused.push(why);
                }
            }
        }
    }
    bail!("--auto: this host has none of the model's congestion controls: {}", refused.join("; "))
}

fn reason(
    model: &ProfileModel,
    best: &Expected<'_>,
    among: usize,
    goal: Goal,
    rtt: Nanos,
    is_met: bool,
    refused: &[String],
) -> String {
    let day = model.made().get(..10).unwrap_or_else(|| model.made());
    let task = match goal {
        Goal::Size(size) => size.to_string(),
        Goal::Duration(time) => time.to_string(),
    };
    let loss = if model.loss() > 0.0 { format!(" and a loss of {}", model.loss()) } else { String::new() };
    let of = format!("the profile model of {day}, of a connection of {} Gb/s{loss},", model.rate_bps() / 1e9);
    let known = words(best.configuration);
    let mut text = if is_met {
        let expected = best.throughput_bps / 1e9;
        format!(
            "{of} expects {expected:.3} Gb/s of it for {task} over a round trip of {rtt}: {known}, the most of {among}"
        )
    } else {
        // What it expects is of all that it chose, of which some is not taken.
        format!("{of} has for {task} over a round trip of {rtt} as the best: {known}, of {among}")
    };
    if let Some([first, last]) = best.beyond {
        text += &format!("; extrapolated, it was measured from {first} to {last}");
    }
    for note in model.notes() {
        text += &format!("; {note}");
    }
    if !is_met {
        text += "; what was asked for on the command line it does not know";
    }
    for why in refused {
        text += &format!("; {why}");
    }
    text
}

fn words(configuration: &Configuration) -> String {
    let name = configuration.congestion.as_ref().map_or("the host's default", |name| name.as_str());
    let streams = configuration.streams.get();
    let buffer = configuration.buffer.map_or_else(
        || "full buffers".to_owned(),
        |buffer| format!("buffers of {}", farlink_wire::quantity::Bytes::from(buffer)),
    );
    format!("{name} with {streams} stream{}, {buffer}", if streams == 1 { "" } else { "s" })
}

/// `$XDG_DATA_HOME/farlink/profile.json`, as the XDG base directories have it.
fn usual_place() -> anyhow::Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    let data = data.ok_or_else(|| {
        anyhow!("--auto: neither XDG_DATA_HOME nor HOME is set: name it, as in --auto=FILE")
    })?;
    Ok(data.join("farlink/profile.json"))
}

/// How a circuit is had.
const NAME_THE_RATE: &str = "name the rate that is guaranteed to you, as in --circuit 10gbit";

/// To what a round trip is rounded.
const SHOWN: u64 = 100_000;

/// A model of a thousand configurations takes about 2 MB.
const MOST_BYTES: u64 = 64 << 20;
