//! The profile model: what a campaign found, as a table by which a mover chooses. `docs/profile-model.md` has its fields.
//!
//! Throughput between the table's numbers is interpolated in proportion: its logarithm is straight in the logarithms of
//! round trip and of size or duration. So a window's limit, which falls as 1/RTT, is met exactly.

use serde::{Deserialize, Serialize};

use crate::message::{Block, Buffer, Goal, Name, Streams, Text};
use crate::quantity::{BitsPerSec, Bytes, Nanos};

/// A model whose tables fit their axes, and hold numbers that have logarithms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct ProfileModel {
    inner: Unchecked,
}

/// What a transfer may choose, and what that should bring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Congestion control; the host's default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Name>,
    /// The wire's rate that is held, with congestion control `circuit`.
    #[serde(rename = "declared_bps", default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<BitsPerSec>,
    /// Data connections.
    pub streams: Streams,
    /// Socket buffers at both ends; the kernel tunes them where absent.
    #[serde(rename = "buffer_bytes", default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Buffer>,
    /// Bytes per write; as is usual where absent.
    #[serde(rename = "block_bytes", default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// Where it was measured, seconds; beyond the first and the last it is extrapolated. Unknown where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured_rtt_s: Option<Vec<f64>>,
    /// A row for each round trip, in it a number for each size.
    size_bps: Vec<Vec<f64>>,
    /// Likewise for each duration.
    duration_bps: Vec<Vec<f64>>,
}

/// What someone insists on, whatever a model says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Congestion control.
    pub congestion: Option<Name>,
    /// The wire's rate that is held.
    pub declared: Option<BitsPerSec>,
    /// Data connections.
    pub streams: Option<Streams>,
    /// Socket buffers.
    pub buffer: Option<Buffer>,
    /// Bytes per write.
    pub block: Option<Block>,
}

/// A configuration and the throughput that is expected of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected<'a> {
    /// What to choose.
    pub configuration: &'a Configuration,
    /// Payload, bits per second.
    pub throughput_bps: f64,
    /// The round trips between which the configuration was measured, where the one asked for lies outside.
    pub beyond: Option<[Nanos; 2]>,
}

impl ProfileModel {
    /// The model that `text` holds.
    ///
    /// # Errors
    /// [`ProfileModelError`], with the place where it breaks or the rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, ProfileModelError> {
        /// What tells whether the rest can be understood at all.
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
            kind: Text,
        }
        let head: Head = serde_json::from_str(text).map_err(ProfileModelError::Json)?;
        if head.kind.as_str() != KIND {
            return Err(ProfileModelError::Kind { kind: head.kind });
        }
        if head.schema != SCHEMA {
            return Err(ProfileModelError::Schema { theirs: head.schema });
        }
        serde_json::from_str(text).map_err(ProfileModelError::Json)
    }

    /// The model as one line, with its line feed.
    #[must_use]
    pub fn line(&self) -> String {
        // Infallible: every key is a string and every number is finite.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// When it was made, as it says.
    #[must_use]
    pub fn made(&self) -> &str {
        self.inner.made.as_str()
    }

    /// The rate of the wire that it is of, bit/s.
    #[must_use]
    pub fn rate_bps(&self) -> f64 {
        self.inner.rate_bps
    }

    /// The share of packets that the wire loses.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.inner.loss
    }

    /// The mover whose runs it is of.
    #[must_use]
    pub fn measured_with(&self) -> &str {
        self.inner.measured_with.as_ref().map_or(USUAL_MOVER, Text::as_str)
    }

    /// How their data were protected, as records have it; `None` of memory, and where unknown.
    #[must_use]
    pub fn protection(&self) -> Option<&str> {
        self.inner.protection.as_ref().map(Text::as_str)
    }

    /// What its predictions assume beyond the records.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.inner.notes.iter().map(Text::as_str)
    }

    /// How many configurations it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.configurations.len()
    }

    /// Never: a model without configurations is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.configurations.is_empty()
    }

    /// The configurations that meet `wishes`, the highest throughput for `goal` over a round trip of `rtt` first; those that
    /// were not measured that far come after all that were.
    ///
    /// Beyond the model's first and last size or duration the nearest holds.
    ///
    /// # Errors
    /// [`OutsideModel`] where the round trip is none of its own: it does not extrapolate.
    pub fn ranked(&self, rtt: Nanos, goal: Goal, wishes: &Wishes) -> Result<Vec<Expected<'_>>, OutsideModel> {
        let Unchecked { rtt_s, bytes, seconds, configurations, .. } = &self.inner;
        let (first, last) = (rtt_s[0], rtt_s[rtt_s.len() - 1]);
        let asked = rtt.as_secs_f64();
        if asked < first * (1.0 - ALIKE) || asked > last * (1.0 + ALIKE) {
            let [first, last] = [first, last].map(Nanos::from_secs_f64);
            return Err(OutsideModel { rtt, first, last });
        }
        let row = place(rtt_s, asked);
        let mut found: Vec<_> = configurations
            .iter()
            .filter(|configuration| wishes.are_met_by(configuration))
            .map(|configuration| {
                let (table, column) = match goal {
                    Goal::Size(size) => (&configuration.size_bps, place(bytes, size.0 as f64)),
                    Goal::Duration(time) => (&configuration.duration_bps, place(seconds, time.as_secs_f64())),
                };
                let beyond = configuration.beyond(asked);
                Expected { configuration, throughput_bps: between(table, row, column), beyond }
            })
            .collect();
        // Stable: of equals the first one of the model.
        found.sort_by(|one, other| {
            let by_throughput = other.throughput_bps.total_cmp(&one.throughput_bps);
            one.beyond.is_some().cmp(&other.beyond.is_some()).then(by_throughput)
        });
        Ok(found)
    }
}

impl Configuration {
    /// The round trips between which it was measured, where `asked` seconds lie outside.
    fn beyond(&self, asked: f64) -> Option<[Nanos; 2]> {
        let measured = self.measured_rtt_s.as_deref()?;
        let (first, last) = (*measured.first()?, *measured.last()?);
        let is_beyond = asked < first * (1.0 - ALIKE) || asked > last * (1.0 + ALIKE);
        is_beyond.then(|| [first, last].map(Nanos::from_secs_f64))
    }
}

impl Wishes {
    /// Whether `configuration` has all that is insisted on.
    #[must_use]
    pub fn are_met_by(&self, configuration: &Configuration) -> bool {
        fn met<T: PartialEq>(wish: Option<&T>, has: Option<&T>) -> bool {
            wish.is_none() || wish == has
        }
        let usual = Block::try_from(USUAL_BLOCK).ok();
        met(self.congestion.as_ref(), configuration.congestion.as_ref())
            && met(self.declared.as_ref(), configuration.declared.as_ref())
            && met(self.streams.as_ref(), Some(&configuration.streams))
            && met(self.buffer.as_ref(), configuration.buffer.as_ref())
            && met(self.block.as_ref(), configuration.block.as_ref().or(usual.as_ref()))
    }
}

/// A model as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unchecked {
    schema: u32,
    kind: Text,
    made: Text,
    rate_bps: f64,
    goodput_bps: f64,
    loss: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured_with: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protection: Option<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Text>,
    rtt_s: Vec<f64>,
    bytes: Vec<f64>,
    seconds: Vec<f64>,
    configurations: Vec<Configuration>,
}

impl TryFrom<Unchecked> for ProfileModel {
    type Error = Malformed;

    fn try_from(inner: Unchecked) -> Result<Self, Malformed> {
        for (axis, name) in [(&inner.rtt_s, "rtt_s"), (&inner.bytes, "bytes"), (&inner.seconds, "seconds")] {
            let grows = axis.windows(2).all(|pair| pair[0] < pair[1]);
            if axis.is_empty() || !grows || !axis.iter().all(|value| has_logarithm(*value)) {
                return Err(Malformed::Axis { name });
            }
        }
        if inner.configurations.is_empty() {
            return Err(Malformed::Empty);
        }
        for (number, one) in inner.configurations.iter().enumerate() {
            let measured = one.measured_rtt_s.as_deref().unwrap_or(&[1.0]);
            let grows = measured.windows(2).all(|pair| pair[0] < pair[1]);
            if measured.is_empty() || !grows || !measured.iter().all(|value| has_logarithm(*value)) {
                return Err(Malformed::Measured { number });
            }
            for (table, columns, name) in [
                (&one.size_bps, inner.bytes.len(), "size_bps"),
                (&one.duration_bps, inner.seconds.len(), "duration_bps"),
            ] {
                let fits = table.len() == inner.rtt_s.len() && table.iter().all(|row| row.len() == columns);
                if !fits || !table.iter().flatten().all(|value| has_logarithm(*value)) {
                    return Err(Malformed::Table { number, name });
                }
            }
        }
        Ok(Self { inner })
    }
}

impl From<ProfileModel> for Unchecked {
    fn from(model: ProfileModel) -> Self {
        model.inner
    }
}

/// Why a text is no profile model.
#[derive(Debug, thiserror::Error)]
pub enum ProfileModelError {
    /// It cannot be read.
    #[error("not a profile model: {0}")]
    Json(serde_json::Error),
    /// It is something else.
    #[error("not a profile model: its kind is {kind:?}")]
    Kind {
        /// What it says that it is.
        kind: Text,
    },
    /// It is newer or older.
    #[error(
        "a profile model of version {theirs}, this farlink reads version {SCHEMA}: save it again with its own lab"
    )]
    Schema {
        /// The version that it has.
        theirs: u32,
    },
}

/// Which rule a model breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Malformed {
    #[error("{name} must be numbers above 0 that grow")]
    Axis { name: &'static str },
    #[error("it has no configurations")]
    Empty,
    #[error("measured_rtt_s of configuration {number} must be numbers above 0 that grow")]
    Measured { number: usize },
    #[error("{name} of configuration {number} must be numbers above 0, a row for each RTT")]
    Table { number: usize, name: &'static str },
}

/// A round trip that a model says nothing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a round trip of {rtt} is outside the model's {first} to {last}")]
pub struct OutsideModel {
    /// What was asked.
    pub rtt: Nanos,
    /// Its shortest.
    pub first: Nanos,
    /// Its longest.
    pub last: Nanos,
}

/// The version of the layout that this reads.
pub const SCHEMA: u32 = 1;

/// What a model says that it is.
const KIND: &str = "profile model";

/// Whose runs a model is of where it does not say.
const USUAL_MOVER: &str = "farlink memory";

/// Round trips that differ by less are one, as for the lab's advice.
const ALIKE: f64 = 0.01;

/// What a mover writes at a time where nobody says otherwise.
const USUAL_BLOCK: Bytes = Bytes(1 << 20);

fn has_logarithm(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// Where `value` lies on an axis: the index before it, and how far it is to the next, 0 to 1.
fn place(axis: &[f64], value: f64) -> (usize, f64) {
    let next = axis.partition_point(|each| *each <= value);
    let Some(index) = next.checked_sub(1) else { return (0, 0.0) };
    match axis.get(next) {
        None => (index, 0.0),
        Some(after) => (index, (value.ln() - axis[index].ln()) / (after.ln() - axis[index].ln())),
    }
}

fn between(table: &[Vec<f64>], (row, down): (usize, f64), (column, across): (usize, f64)) -> f64 {
    let along = |row: &Vec<f64>| mixed(row[column], row.get(column + 1).copied(), across);
    mixed(along(&table[row]), table.get(row + 1).map(along), down)
}

/// What lies between two numbers, by their logarithms.
fn mixed(one: f64, next: Option<f64>, share: f64) -> f64 {
    next.filter(|_| share > 0.0).map_or(one, |next| (one.ln() + share * (next.ln() - one.ln())).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ProfileModel {
        ProfileModel::parse(MODEL).unwrap()
    }

    fn best(rtt_ms: f64, bytes: u64, wishes: &Wishes) -> (u32, f64) {
        let goal = Goal::size(Bytes(bytes)).unwrap();
        let model = model();
        let ranked = model.ranked(Nanos::from_secs_f64(rtt_ms / 1e3), goal, wishes).unwrap();
        (ranked[0].configuration.streams.into(), ranked[0].throughput_bps)
    }

    #[test]
    fn the_highest_throughput_for_round_trip_and_size_comes_first() {
        assert_eq!(best(10.0, 1_000_000, &Wishes::default()), (10, 9e8));
        assert_eq!(best(10.0, 1_000_000_000, &Wishes::default()), (1, 9e9));
    }

    #[test]
    fn a_window_limit_is_met_exactly_between_round_trips() {
        let wishes = Wishes { streams: Some(4.try_into().unwrap()), ..Wishes::default() };
        let (_, throughput) = best(40.0, 1_000_000_000, &wishes);
        assert!((throughput / 1e9 - 1.0).abs() < 1e-6, "{throughput}");
    }

    #[test]
    fn beyond_the_sizes_the_nearest_holds_and_beyond_the_round_trips_nothing_does() {
        assert_eq!(best(10.0, 1, &Wishes::default()), best(10.0, 1_000_000, &Wishes::default()));
        assert_eq!(best(100.5, 1, &Wishes::default()), best(100.0, 1, &Wishes::default()));
        let model = model();
        let outside = model.ranked(Nanos(200_000_000), Goal::size(Bytes(1)).unwrap(), &Wishes::default());
        assert_eq!(
            outside.unwrap_err().to_string(),
            "a round trip of 200ms is outside the model's 10ms to 100ms"
        );
    }

    #[test]
    fn what_was_not_measured_that_far_comes_last_and_says_so() {
        let text = MODEL.replace("\"streams\":1,", "\"streams\":1,\"measured_rtt_s\":[0.01,0.02],");
        let model = ProfileModel::parse(&text).unwrap();
        let goal = Goal::size(Bytes(1_000_000_000)).unwrap();
        let at = |rtt| model.ranked(Nanos(rtt), goal, &Wishes::default()).unwrap();
        let near = at(20_000_000);
        assert_eq!((near[0].configuration.streams.get(), near[0].beyond), (1, None));
        let far = at(50_000_000);
        assert_eq!(far[0].configuration.streams.get(), 10);
        assert_eq!(far[2].beyond, Some([Nanos(10_000_000), Nanos(20_000_000)]));
        assert_eq!(ProfileModel::parse(&model.line()).unwrap(), model);
    }

    #[test]
    fn wishes_are_met_or_nothing_is_there() {
        let wishes = Wishes { streams: Some(7.try_into().unwrap()), ..Wishes::default() };
        let goal = Goal::duration(Nanos(1_000_000_000)).unwrap();
        assert!(model().ranked(Nanos(10_000_000), goal, &wishes).unwrap().is_empty());
        let usual = Wishes { block: Some(Bytes(1 << 20).try_into().unwrap()), ..Wishes::default() };
        assert_eq!(model().ranked(Nanos(10_000_000), goal, &usual).unwrap().len(), model().len());
    }

    #[test]
    fn what_was_read_is_written_as_it_was() {
        assert_eq!(ProfileModel::parse(&model().line()).unwrap(), model());
    }

    #[test]
    fn what_breaks_a_rule_is_named() {
        for (from, to, said) in [
            ("\"schema\":1", "\"schema\":2", "version 2"),
            ("profile model", "recipe", "recipe"),
            ("[0.01,0.1]", "[0.1,0.01]", "rtt_s"),
            ("[0.01,0.1]", "[]", "rtt_s"),
            ("[9e8,5e9]", "[9e8]", "size_bps of configuration 0"),
            ("[9e8,5e9]", "[9e8,0]", "size_bps of configuration 0"),
            ("\"streams\":10", "\"streams\":0", "1 to 512"),
            ("\"streams\":1,", "\"streams\":1,\"measured_rtt_s\":[],", "measured_rtt_s of configuration 1"),
            ("cubic", "a name too long", "congestion control's name"),
        ] {
            assert!(MODEL.contains(from), "{from}");
            let complaint = ProfileModel::parse(&MODEL.replace(from, to)).unwrap_err().to_string();
            assert!(complaint.contains(said), "{complaint}");
        }
        assert!(ProfileModel::parse("").is_err());
    }

    const MODEL: &str = r#"{"schema":1,"kind":"profile model","made":"2026-11-21T15:00:00Z","rate_bps":1e10,
        "goodput_bps":9.9e9,"loss":0,"rtt_s":[0.01,0.1],"bytes":[1000000,1000000000],"seconds":[1,10],
        "configurations":[
        {"congestion":"cubic","streams":10,"size_bps":[[9e8,5e9],[1e8,4e9]],"duration_bps":[[9e9,9e9],[8e9,8e9]]},
        {"streams":1,"size_bps":[[5e8,9e9],[5e7,8e9]],"duration_bps":[[9e9,9e9],[8e9,8e9]]},
        {"streams":4,"buffer_bytes":1048576,"size_bps":[[4e8,4e9],[4e7,4e8]],"duration_bps":[[1e9,1e9],[1e9,1e9]]}]}"#;
}
