//! What the environment says to a process of a job: the variables that `farlink mpi env` prints, and a few of the launchers'.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos, QuantityError};

use super::endpoint;
use super::messages::MOST_WINDOW;
use super::path::LEAST_RATE;
use super::transport::Kind;
use super::transport::dc::policy::{PolicyKind, UnknownPolicy};
use super::transport::dc::{Initiators, Settings as Dc};

/// What a process of a job and its endpoint are to do.
#[derive(Clone)]
pub struct Settings {
    /// `FARLINK_JOB_KEY`.
    pub key: [u8; 32],
    /// `FARLINK_TRANSPORT`, and what goes with it.
    transport: Kind,
    /// As it is written.
    pub transport_name: String,
    /// `FARLINK_RATE`, this process's share of it.
    rate: Option<BitsPerSec>,
    /// Ranks of this host, of which each has its share of a rate, known or not.
    pub sharers: u64,
    /// `FARLINK_INTERFACE`.
    pub interface: Option<String>,
    /// `FARLINK_EAGER`.
    eager: usize,
    /// `FARLINK_PEER_TIMEOUT`.
    pub silence: Nanos,
    /// `FARLINK_SHM`.
    pub shared_memory: bool,
    /// `FARLINK_STATS`.
    pub statistics: Option<PathBuf>,
    /// This process's place among those of the job, as its launcher says.
    pub rank: Option<u64>,
    /// How many of them there are, as its launcher says.
    ranks: Option<u64>,
    /// How many of them this host has, as its launcher says.
    pub ranks_here: Option<u64>,
    /// `FARLINK_PROOF`.
    pub proof: Option<PathBuf>,
}

/// What a user may say by a variable: each is handed on to the ranks of other hosts.
pub const VARIABLES: [&str; 11] = [
    "FARLINK_TRANSPORT",
    "FARLINK_RATE",
    "FARLINK_DCIS",
    "FARLINK_DCI_POLICY",
    "FARLINK_DCI_QUOTA",
    "FARLINK_DC_HANDSHAKE",
    "FARLINK_EAGER",
    "FARLINK_INTERFACE",
    "FARLINK_STATS",
    "FARLINK_PEER_TIMEOUT",
    "FARLINK_SHM",
];

/// Why they cannot: a variable that says what cannot be.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SettingError {
    /// Nothing is derived in its place: a key that others could derive, too, is none.
    #[error(
        "FARLINK_JOB_KEY is not set: start the program with 'farlink mpi run' or set what 'farlink mpi env' prints"
    )]
    NoKey,
    /// The value is not shown: it may be nearly a key.
    #[error(
        "FARLINK_JOB_KEY has {len} characters and must be 64 hexadecimal digits: set what 'farlink mpi env' prints"
    )]
    Key {
        /// Characters that it has.
        len: usize,
    },
    /// A variable, its value, and the words of which it is none.
    #[error("{0}={1:?} is not one of {2}: set one of these, or leave it out")]
    Choice(&'static str, String, &'static str),
    /// A variable, its value, and the least and the most of the numbers of which it is none.
    #[error("{0}={1:?} is not a number from {2} to {3}: set one, or leave it out")]
    Number(&'static str, String, u64, u64),
    /// A variable, its value, and what that must be.
    #[error("{0}={1:?} must be {2}: set that, or leave it out")]
    Range(&'static str, String, &'static str),
    /// A variable, and why its value is no quantity.
    #[error("{0}: {1}")]
    Quantity(&'static str, QuantityError),
    /// A variable, and why its value is no policy.
    #[error("{0}: {1}")]
    Policy(&'static str, UnknownPolicy),
    /// A variable.
    #[error("{0} is not UTF-8: set it again, or leave it out")]
    NotText(&'static str),
}

impl Settings {
    /// As an environment says in which a variable has the value that `lookup` gives.
    ///
    /// # Errors
    /// The first variable that says what cannot be, or no key.
    pub fn from_variables(lookup: impl Fn(&'static str) -> Option<OsString>) -> Result<Self, SettingError> {
        // What is empty says nothing; but a key that is empty is none.
        let says = |name: &str, value: &OsString| name == "FARLINK_JOB_KEY" || !value.is_empty();
        let found = |name| lookup(name).filter(|value| says(name, value));
        Self::read(&|name| {
            found(name).map(|value| value.into_string().map_err(|_| SettingError::NotText(name))).transpose()
        })
    }

    fn read(variable: Variables<'_>) -> Result<Self, SettingError> {
        let key = variable("FARLINK_JOB_KEY")?.ok_or(SettingError::NoKey)?;
        let key = parse_key(&key).ok_or(SettingError::Key { len: key.chars().count() })?;
        let transport_name = variable(TRANSPORT)?.unwrap_or_else(|| "dc".to_owned());
        let ranks_here = launcher_number(variable, &RANKS_HERE)?;
        let sharers = match ranks_here {
            Some(ranks) => ranks,
            None => slurm_ranks_here(variable)?.unwrap_or(1),
        }
        .max(1);
        let rate = quantity::<BitsPerSec>(variable, "FARLINK_RATE")?;
        if let Some(rate) = rate.filter(|rate| rate.get() < LEAST_RATE) {
            return Err(SettingError::Range("FARLINK_RATE", rate.to_string(), "1mbit or more"));
        }
        let eager = quantity::<Bytes>(variable, "FARLINK_EAGER")?.unwrap_or(Bytes(EAGER));
        if eager.0 > MOST_WINDOW {
            return Err(SettingError::Range("FARLINK_EAGER", eager.to_string(), "64MiB or less"));
        }
        let silence = quantity::<Nanos>(variable, "FARLINK_PEER_TIMEOUT")?.unwrap_or(SILENCE);
        if silence < LEAST_SILENCE {
            return Err(SettingError::Range("FARLINK_PEER_TIMEOUT", silence.to_string(), "1s or longer"));
        }
        let shared_memory = match variable("FARLINK_SHM")?.as_deref() {
            None | Some("1") => true,
            Some("0") => false,
            Some(value) => return Err(SettingError::Choice("FARLINK_SHM", value.to_owned(), "0, 1")),
        };
        Ok(Self {
            key,
            transport: transport(&transport_name, variable)?,
            transport_name,
            rate: rate.and_then(|rate| BitsPerSec::new((rate.get() / sharers).max(1))),
            sharers,
            interface: variable("FARLINK_INTERFACE")?.filter(|name| !name.is_empty()),
            eager: usize::try_from(eager.0).unwrap_or(usize::MAX),
            silence,
            shared_memory,
            statistics: variable("FARLINK_STATS")?.filter(|name| !name.is_empty()).map(PathBuf::from),
            rank: launcher_number(variable, &RANK)?,
            ranks: launcher_number(variable, &RANKS)?,
            // Slurm's may be what was asked for, which is not always what there is.
            ranks_here,
            proof: variable("FARLINK_PROOF")?.filter(|name| !name.is_empty()).map(PathBuf::from),
        })
    }

    /// Those of the endpoint, with datagrams of `payload` bytes at most.
    pub fn of_endpoint(&self, payload: usize, seed: u64) -> endpoint::Settings {
        endpoint::Settings {
            transport: self.transport,
            key: self.key,
            payload: payload.clamp(SHORTEST_DATAGRAM, LONGEST_DATAGRAM),
            rate: self.rate,
            sharers: self.sharers,
            eager: self.eager,
            most: LONGEST_MESSAGE,
            processes: self.ranks,
            silence: self.silence,
            nearby: self.shared_memory,
            seed,
        }
    }
}

impl std::fmt::Debug for Settings {
    // A key is nobody's to read.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// What a variable says, if it is set.
type Variables<'a> = &'a dyn Fn(&'static str) -> Result<Option<String>, SettingError>;

fn transport(name: &str, variable: Variables<'_>) -> Result<Kind, SettingError> {
    match name {
        "rc" => Ok(Kind::Rc),
        "xrc" => Ok(Kind::Xrc),
        "ud" => Ok(Kind::Ud),
        "dc" => dynamic(variable).map(Kind::Dc),
        _ => Err(SettingError::Choice(TRANSPORT, name.to_owned(), "rc, xrc, ud, dc")),
    }
}

/// What may be chosen of dynamic connections.
fn dynamic(variable: Variables<'_>) -> Result<Dc, SettingError> {
    let usual = Dc::default();
    let policy =
        |text: String| text.parse::<PolicyKind>().map_err(|reason| SettingError::Policy(POLICY, reason));
    let full_handshake = match variable(HANDSHAKE)?.as_deref() {
        None => usual.full_handshake,
        Some("half") => false,
        Some("full") => true,
        Some(value) => return Err(SettingError::Choice(HANDSHAKE, value.to_owned(), "half, full")),
    };
    let initiators = number(variable, "FARLINK_DCIS", 1, Initiators::MOST.into())?;
    let quota = number(variable, "FARLINK_DCI_QUOTA", 1, u32::MAX.into())?;
    Ok(Dc {
        initiators: initiators
            .and_then(|count| Initiators::new(u16::try_from(count).ok()?))
            .unwrap_or(usual.initiators),
        policy: variable(POLICY)?.map(policy).transpose()?.unwrap_or(usual.policy),
        quota: quota.and_then(|quota| NonZeroU32::new(u32::try_from(quota).ok()?)).unwrap_or(usual.quota),
        full_handshake,
    })
}

fn parse_key(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if digits.len() == 64 { bytes.try_into().ok() } else { None }
}

fn quantity<T: FromStr<Err = QuantityError>>(
    variable: Variables<'_>,
    name: &'static str,
) -> Result<Option<T>, SettingError> {
    let parse = |text: String| text.parse().map_err(|reason| SettingError::Quantity(name, reason));
    variable(name)?.map(parse).transpose()
}

fn number(
    variable: Variables<'_>,
    name: &'static str,
    least: u64,
    most: u64,
) -> Result<Option<u64>, SettingError> {
    let Some(value) = variable(name)? else { return Ok(None) };
    match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
        _ => Err(SettingError::Number(name, value, least, most)),
    }
}

/// What a launcher says, whichever it is; what it says otherwise is its own.
fn launcher_number(variable: Variables<'_>, names: &[&'static str]) -> Result<Option<u64>, SettingError> {
    for &name in names {
        if let Some(number) = variable(name)?.and_then(|value| value.parse().ok()) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// How many processes this host has, where Slurm started them: as many as the step has there, or else as the job was given or asked for.
fn slurm_ranks_here(variable: Variables<'_>) -> Result<Option<u64>, SettingError> {
    let host = launcher_number(variable, &["SLURM_NODEID"])?;
    let listed = |name| variable(name).map(|list| of_host(&list?, host?));
    let asked = launcher_number(variable, &["SLURM_NTASKS_PER_NODE"])?;
    Ok(listed("SLURM_STEP_TASKS_PER_NODE")?.or(asked).or(listed("SLURM_TASKS_PER_NODE")?))
}

/// What a list of Slurm's says of the host of that number: by `4(x2),3` the first two have four, and the next three.
fn of_host(list: &str, host: u64) -> Option<u64> {
    let mut runs = Vec::new();
    for run in list.split(',') {
        let (count, hosts) = match run.split_once("(x") {
            Some((count, hosts)) => (count, hosts.strip_suffix(')')?.parse().ok()?),
            None => (run, 1_u64),
        };
        runs.push((count.parse().ok()?, hosts));
    }
    let mut before = 0_u64;
    let run = runs.into_iter().find(|(_, hosts)| {
        before = before.saturating_add(*hosts);
        host < before
    });
    run.map(|(count, _)| count)
}

const TRANSPORT: &str = "FARLINK_TRANSPORT";
const POLICY: &str = "FARLINK_DCI_POLICY";
const HANDSHAKE: &str = "FARLINK_DC_HANDSHAKE";

/// Open MPI's, MPICH's: processes of this host.
const RANKS_HERE: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// Open MPI's, MPICH's, Slurm's: which of the job's processes this is.
const RANK: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// Open MPI's, MPICH's, Slurm's: how many the job has.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// Messages up to so many bytes go at once, where nothing else is said: what a message gains by not asking first, a round trip, is more
/// than what it loses where it must be copied once more, on connections as long as those that this is for.
const EAGER: u64 = 4 << 20;

/// How long a peer may owe an answer: links that are cut for five seconds, and a few attempts after that.
const SILENCE: Nanos = Nanos(20_000_000_000);

/// Less would be shorter than a few round trips of the longest connection.
const LEAST_SILENCE: Nanos = Nanos(1_000_000_000);

/// Bytes of the longest message: more than any process has, since a longer one is an error of MPI's.
pub const LONGEST_MESSAGE: usize = 1 << 40;

/// Bytes of a datagram at most: in packets of 9,000 bytes. The loopback interface would carry more.
const LONGEST_DATAGRAM: usize = 8_972;

/// And at least, whatever an interface takes at once: each has room for a frame, and the kernel sends it in fragments.
const SHORTEST_DATAGRAM: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00ff00000000000000000000000000000000000000000000000000000000000a";

    impl Settings {
        /// As these variables say, in a job with a key.
        fn of(set: &[(&str, &str)]) -> Result<Self, SettingError> {
            let all = [&[("FARLINK_JOB_KEY", KEY)], set].concat();
            let value =
                |name| all.iter().rev().find(|(its, _)| *its == name).map(|(_, value)| (*value).into());
            Self::from_variables(value)
        }
    }

    #[test]
    fn all_that_is_read_is_handed_on() {
        let read = std::cell::RefCell::new(Vec::new());
        let lookup = |name: &'static str| {
            read.borrow_mut().push(name);
            (name == "FARLINK_JOB_KEY").then(|| KEY.into())
        };
        Settings::from_variables(lookup).unwrap();
        let is_said = |name: &&str| {
            name.starts_with("FARLINK_") && !["FARLINK_JOB_KEY", "FARLINK_PROOF"].contains(name)
        };
        let mut read: Vec<_> = read.into_inner().into_iter().filter(is_said).collect();
        let mut all = VARIABLES.to_vec();
        read.sort_unstable();
        all.sort_unstable();
        assert_eq!(read, all);
    }

    #[test]
    fn what_is_empty_says_nothing() {
        let names = ["TRANSPORT", "RATE", "EAGER", "SHM", "DCIS", "STATS", "INTERFACE"];
        let names = names.map(|name| format!("FARLINK_{name}"));
        let empty: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        let (settings, usual) = (Settings::of(&empty).unwrap(), Settings::of(&[]).unwrap());
        assert_eq!(settings.transport, usual.transport);
        assert_eq!((settings.rate, settings.eager, settings.statistics), (None, usual.eager, None));
    }

    #[test]
    fn a_key_is_enough() {
        let settings = Settings::of(&[]).unwrap();
        assert_eq!((settings.key[1], settings.key[31]), (255, 10));
        assert_eq!(settings.transport_name, "dc");
        assert!(settings.shared_memory && settings.rate.is_none() && settings.rank.is_none());
    }

    #[test]
    fn without_a_key_the_way_to_one_is_told() {
        let error = Settings::from_variables(|_| None).unwrap_err();
        assert_eq!(error, SettingError::NoKey);
        assert!(error.to_string().contains("farlink mpi run"), "{error}");
        for wrong in ["", "abc", &KEY[1..], &format!("{}g", &KEY[1..])] {
            let error = Settings::of(&[("FARLINK_JOB_KEY", wrong)]).unwrap_err();
            assert_eq!(error, SettingError::Key { len: wrong.len() });
            assert!(!error.to_string().contains("abc"));
        }
    }

    #[test]
    fn datagrams_have_room_for_frames_whatever_an_interface_takes() {
        let payload = |takes| Settings::of(&[]).unwrap().of_endpoint(takes, 1).payload;
        assert_eq!([40, 548, 65_000].map(payload), [512, 548, 8_972]);
    }

    #[test]
    fn the_host_s_rate_is_shared_by_its_ranks() {
        let rate = |set: &[(&'static str, &'static str)]| Settings::of(set).unwrap().rate.unwrap().get();
        assert_eq!(rate(&[("FARLINK_RATE", "10gbit")]), 10_000_000_000);
        let shared = [("FARLINK_RATE", "10gbit"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
        assert_eq!(rate(&shared), 2_500_000_000);
        assert_eq!(rate(&[("FARLINK_RATE", "9mbit"), ("MPI_LOCALNRANKS", "3")]), 3_000_000);
        // So is one that is sought.
        let sharers = |set: &[_]| Settings::of(set).unwrap().of_endpoint(8972, 1).sharers;
        assert_eq!([sharers(&[]), sharers(&[("MPI_LOCALNRANKS", "3")])], [1, 3]);
    }

    #[test]
    fn the_host_s_rate_is_shared_by_those_that_slurm_started_there() {
        let rate = |set: &[(&'static str, &'static str)]| {
            let set = [&[("FARLINK_RATE", "12gbit")], set].concat();
            let settings = Settings::of(&set).unwrap();
            assert_eq!(settings.ranks_here, None);
            12_000_000_000 / settings.rate.unwrap().get()
        };
        let [step, job, host] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NODEID"];
        let on = |list, number| rate(&[(step, list), (host, number)]);
        assert_eq!(["0", "1", "2", "3"].map(|number| on("4(x2),3", number)), [4, 4, 3, 1]);
        assert_eq!([on("6", "0"), on("1(x4000000000000),2", "3"), on("2,3,1", "1")], [6, 1, 3]);
        // The step's, what was asked for, the job's: the first that can be read.
        let asked = ("SLURM_NTASKS_PER_NODE", "3");
        assert_eq!(rate(&[(step, "2"), asked, (job, "4"), (host, "0")]), 2);
        assert_eq!(rate(&[asked, (job, "4"), (host, "0")]), 3);
        for unread in ["", "x", "4(x", "4(xx)", "4(x2", "2,", "(x2)"] {
            assert_eq!(rate(&[(step, unread), (job, "4(x2)"), (host, "1")]), 4, "{unread}");
        }
        assert_eq!([rate(&[(job, "4")]), rate(&[(job, "4"), (host, "a")]), on("0", "0")], [1; 3]);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_mend() {
        let wrong = [
            ("FARLINK_TRANSPORT", "tcp", "rc, xrc, ud, dc"),
            ("FARLINK_RATE", "10", "unit"),
            ("FARLINK_RATE", "10kbit", "1mbit or more"),
            ("FARLINK_EAGER", "much", "write a number and its unit"),
            ("FARLINK_EAGER", "99TiB", "64MiB or less"),
            ("FARLINK_SHM", "yes", "0, 1"),
            ("FARLINK_DCIS", "0", "from 1 to 1024"),
            ("FARLINK_DCI_POLICY", "mru", "lru"),
            ("FARLINK_DC_HANDSHAKE", "no", "half, full"),
            ("FARLINK_PEER_TIMEOUT", "10ms", "1s or longer"),
        ];
        for (name, value, mend) in wrong {
            let error = Settings::of(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value) && error.contains(mend), "{error}");
        }
    }
}
