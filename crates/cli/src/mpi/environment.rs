//! The variables that make an MPI library, and Farlink in it, do what is wanted.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use farlink_flow::fabric::messages::MOST_WINDOW;
use farlink_flow::fabric::path::LEAST_RATE;
use farlink_flow::fabric::settings::{SettingError, Settings as OfRank, VARIABLES};
use farlink_flow::fabric::transport::dc::Initiators;
use farlink_flow::fabric::transport::dc::policy::PolicyKind;
use farlink_host::{network, process};
use farlink_wire::quantity::{BitsPerSec, Bytes};

/// Whose MPI it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mpi {
    /// Open MPI
    OpenMpi,
    /// MPICH, with its network module ofi
    Mpich,
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        })
    }
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// a connection to each process
    Rc,
    /// a connection to each host
    Xrc,
    /// datagrams, and no connection
    Ud,
    /// a few connections, lent to processes in turn
    Dc,
}

impl Transport {
    const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Xrc => "xrc",
            Self::Ud => "ud",
            Self::Dc => "dc",
        }
    }
}

/// What is wanted of Farlink. What is not named is as the environment has it, or as usual.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Settings {
    /// How messages travel: dc where nothing is said
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) transport: Option<Transport>,
    /// The rate that the path to other hosts has, all ranks of a host together, as in 10gbit; sought otherwise
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<BitsPerSec>,
    /// Initiators of each rank, with --transport dc: connections that it has at a time; 32 where nothing is said
    #[arg(long, value_name = "N", value_parser = initiators)]
    pub(crate) dcis: Option<Initiators>,
    /// Which initiator a peer is given, with --transport dc: dcs_quota (where nothing is said), dcs, rand, lru or static
    #[arg(long, value_name = "POLICY")]
    pub(crate) dci_policy: Option<PolicyKind>,
    /// Messages up to this size go at once, longer ones when the receiver wants them; 4MiB where nothing is said
    #[arg(long, value_name = "SIZE")]
    pub(crate) eager: Option<Bytes>,
    /// The interface, or its address, that leads to the other hosts; found otherwise
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) interface: Option<String>,
    /// Each rank appends a line of JSON to this file at its end: what it sent, connected and waited for
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
}

impl Settings {
    /// Refuses what ranks of this host would find that they cannot use: an interface, a file for statistics.
    pub(crate) fn suits_this_host(&self, read: &OfRank) -> anyhow::Result<()> {
        if let Some(interface) = &read.interface {
            let said = if self.interface.is_some() { "--interface" } else { "FARLINK_INTERFACE" };
            network::address(Some(interface)).with_context(|| said.to_owned())?;
        }
        if let Some(stats) = &read.statistics {
            let said = if self.stats.is_some() { "--stats" } else { "FARLINK_STATS" };
            // One that a shell made has a reader, and another name.
            if stats.symlink_metadata().is_ok_and(|status| status.file_type().is_fifo()) {
                bail!("{said} {} is a pipe, whose reader ranks would wait for: name a file", stats.display());
            }
            let opened = OpenOptions::new().append(true).create(true).open(stats);
            opened.with_context(|| format!("{said} {}", stats.display()))?;
        }
        Ok(())
    }
}

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) value: OsString,
    /// Whether it is as it was found, and nobody asked for it here.
    is_inherited: bool,
}

impl Variable {
    pub(crate) fn new(name: &'static str, value: impl Into<OsString>) -> Self {
        Self { name, value: value.into(), is_inherited: false }
    }

    /// The line that sets it in a shell.
    pub(crate) fn export(&self) -> Vec<u8> {
        [b"export ", self.name.as_bytes(), b"=", &quoted(&self.value), b"\n"].concat()
    }
}

/// All of them, with a new key, and what ranks will read in them and in what is inherited beside them.
pub(crate) fn variables(
    mpi: Mpi,
    library: &Path,
    settings: &Settings,
) -> anyhow::Result<(Vec<Variable>, OfRank)> {
    let key = process::random::<32>().context("draw a random key")?;
    let mut all = of_mpi(mpi, library);
    all.push(Variable::new(JOB_KEY, hexadecimal(&key)));
    all.extend(of_settings(settings)?);
    let read = read(&all, std::env::var_os)?;
    // What is said otherwise, for ranks of other hosts as well.
    for name in VARIABLES {
        let is_new = |value: &OsString| !value.is_empty() && !all.iter().any(|each| each.name == name);
        let value = std::env::var_os(name).filter(is_new);
        all.extend(value.map(|value| Variable { name, value, is_inherited: true }));
    }
    Ok((all, read))
}

/// Checks what the launcher's own options give ranks of a program beside `variables`: it is what they would read, and nothing else may have been
/// asked for. What is no MPI's own launcher may be a script, of whose jobs some are over another network.
pub(crate) fn agree(
    variables: &[Variable],
    named: &[(OsString, OsString)],
    is_launcher: bool,
) -> anyhow::Result<()> {
    if named.iter().any(|(name, _)| *name == *JOB_KEY) {
        bail!(
            "{JOB_KEY} stands behind the launcher, and each job has a new one here: leave it out, or use farlink mpi env"
        );
    }
    for (name, value) in named {
        let name = if name == PROVIDERS_OF_MTL { OsStr::new(PROVIDERS) } else { name };
        let ours = variables.iter().find(|each| name == each.name && !each.is_inherited);
        let Some(ours) = ours.filter(|ours| ours.value != *value) else { continue };
        let (its, other) = (ours.value.display(), value.display());
        if is_launcher && NETWORKS.contains(&ours.name) {
            bail!(
                "{0} is {other} behind the launcher, and messages go over Farlink by {0}={its} alone: leave it out",
                ours.name
            );
        }
        if ours.name.starts_with("FARLINK_") {
            bail!(
                "{} is {other} behind the launcher, and {its} by what farlink was told: leave one out",
                ours.name
            );
        }
    }
    let named =
        |name: &str| named.iter().rev().find(|(its, _)| *its == *name).map(|(_, value)| value.clone());
    let others: Vec<_> = variables.iter().filter(|each| named(each.name).is_none()).cloned().collect();
    read(&others, |name| named(name).or_else(|| std::env::var_os(name)))?;
    Ok(())
}

/// Reads what a rank will: these variables, and what is `inherited` beside them. Each rank would refuse it, and say so for itself.
fn read(
    variables: &[Variable],
    inherited: impl Fn(&'static str) -> Option<OsString>,
) -> Result<OfRank, SettingError> {
    let ours = |name| variables.iter().find(|each| each.name == name).map(|each| each.value.clone());
    OfRank::from_variables(|name| ours(name).or_else(|| inherited(name)))
}

/// Those that make the library use Farlink, and nothing else.
fn of_mpi(mpi: Mpi, library: &Path) -> Vec<Variable> {
    let mut all = vec![Variable::new("FI_PROVIDER_PATH", library)];
    all.extend(match mpi {
        Mpi::OpenMpi => OPEN_MPI.map(|(name, value)| Variable::new(name, value)).to_vec(),
        Mpi::Mpich => MPICH.map(|(name, value)| Variable::new(name, value)).to_vec(),
    });
    all
}

fn of_settings(settings: &Settings) -> anyhow::Result<Vec<Variable>> {
    let of_dc = [("--dcis", settings.dcis.is_some()), ("--dci-policy", settings.dci_policy.is_some())];
    if let Some((option, _)) = of_dc.iter().find(|(_, is_given)| *is_given) {
        let inherited = std::env::var_os("FARLINK_TRANSPORT")
            .filter(|its| !its.is_empty() && settings.transport.is_none());
        match (settings.transport, inherited) {
            (Some(transport), _) if transport != Transport::Dc => {
                bail!(
                    "{option} is of --transport dc, and --transport is {}: leave one out",
                    transport.name()
                );
            }
            (None, Some(its)) if its != Transport::Dc.name() => {
                let its = its.to_string_lossy();
                bail!(
                    "{option} is of --transport dc, and FARLINK_TRANSPORT is {its}: say --transport dc, or leave {option} out"
                );
            }
            _ => {}
        }
    }
    if let Some(rate) = settings.rate.filter(|rate| rate.get() < LEAST_RATE) {
        bail!(
            "--rate {rate} is no rate of a path between hosts: write 1mbit or more, as in 10gbit, or leave it out"
        );
    }
    if let Some(eager) = settings.eager.filter(|eager| eager.0 > MOST_WINDOW) {
        bail!(
            "--eager {eager} is more than a receiver ever has room for: write 64MiB or less, as in 4MiB, or leave it out"
        );
    }
    let stats = settings.stats.as_deref().map(std::path::absolute).transpose();
    let stats = stats.context("--stats: the name of this directory")?;
    let all = [
        ("FARLINK_TRANSPORT", settings.transport.map(|transport| transport.name().into())),
        ("FARLINK_RATE", settings.rate.map(|rate| format!("{}bit", rate.get()).into())),
        ("FARLINK_DCIS", settings.dcis.map(|initiators| initiators.count().to_string().into())),
        ("FARLINK_DCI_POLICY", settings.dci_policy.map(|policy| policy.name().into())),
        ("FARLINK_EAGER", settings.eager.map(|bytes| format!("{}B", bytes.0).into())),
        ("FARLINK_INTERFACE", settings.interface.clone().map(OsString::from)),
        // Ranks may run in other directories.
        ("FARLINK_STATS", stats.map(OsString::from)),
    ];
    let named = |(name, value): (&'static str, Option<OsString>)| Some(Variable::new(name, value?));
    Ok(all.into_iter().filter_map(named).collect())
}

/// Names of the variables that ranks of other hosts need, and that Open MPI does not give them by itself.
pub(crate) fn handed_on<'a>(all: impl Iterator<Item = &'a Variable>) -> Vec<OsString> {
    let all: BTreeSet<_> = all.map(|variable| OsString::from(variable.name)).collect();
    all.into_iter().filter(|name| !name.as_bytes().starts_with(HANDED_ON_ALREADY)).collect()
}

fn initiators(text: &str) -> anyhow::Result<Initiators> {
    let most = Initiators::MOST;
    let count = text.parse().ok().and_then(Initiators::new);
    count.with_context(|| format!("{text:?} is not a number of initiators: write 1 to {most}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `value` as a shell reads it back.
fn quoted(value: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:,^@%+=".contains(byte);
    let bytes = value.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return bytes.to_vec();
    }
    let mut quoted = vec![b'\''];
    for &byte in bytes {
        // A quote ends the quoted part, stands for itself, and begins the next.
        if byte == b'\'' { quoted.extend(b"'\\''") } else { quoted.push(byte) }
    }
    quoted.push(b'\'');
    quoted
}

/// Open MPI's parameters. Debian's own file of them (`/etc/openmpi/openmpi-mca-params.conf`) refuses `mtl` `ofi`, so that it, and the `pml`
/// above it, must be named; then there is no other network that messages could take, and without Farlink MPI does not start.
///
/// One-sided communication has components of its own, which know other networks: of these it is left shared memory, for ranks of one host,
/// and beyond that the one that sends messages (`pt2pt`), which Debian's file refuses as well.
const OPEN_MPI: [(&str, &str); 7] = [
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    (PROVIDERS, "farlink"),
    ("OMPI_MCA_btl", "self,vader"),
    ("OMPI_MCA_osc", "^ucx"),
    // One of those components complains aloud, and steps back, where shared memory leads nowhere.
    ("OMPI_MCA_bml_r2_show_unreach_errors", "0"),
    // Where the user has named another for other programs, Farlink would not be looked for.
    ("FI_PROVIDER", "farlink"),
];

/// MPICH's: the network module, and nothing beside it for ranks of one host.
const MPICH: [(&str, &str); 3] =
    [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1"), ("FI_PROVIDER", "farlink")];

/// Open MPI's parameter of libfabric's providers, and another name of it.
const PROVIDERS: &str = "OMPI_MCA_opal_common_ofi_provider_include";
const PROVIDERS_OF_MTL: &str = "OMPI_MCA_mtl_ofi_provider_include";

/// Of those, what has messages take another network where it is another, or shared memory that is the MPI's own. The rest is for what is no
/// message, and its user may know better.
const NETWORKS: [&str; 6] =
    ["OMPI_MCA_pml", "OMPI_MCA_mtl", PROVIDERS, "MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_NOLOCAL", "FI_PROVIDER"];

/// What all processes of a job have, and nobody else.
pub(crate) const JOB_KEY: &str = "FARLINK_JOB_KEY";

/// Open MPI gives its own parameters to every rank.
const HANDED_ON_ALREADY: &[u8] = b"OMPI_MCA_";

#[cfg(test)]
mod tests {
    use super::*;

    fn words(variables: &[Variable]) -> Vec<String> {
        variables.iter().map(|each| format!("{}={}", each.name, each.value.to_str().unwrap())).collect()
    }

    #[test]
    fn open_mpi_is_left_no_other_network() {
        let words = words(&of_mpi(Mpi::OpenMpi, Path::new("/opt/farlink/fabric")));
        assert_eq!(
            words,
            [
                "FI_PROVIDER_PATH=/opt/farlink/fabric",
                "OMPI_MCA_pml=cm",
                "OMPI_MCA_mtl=ofi",
                "OMPI_MCA_opal_common_ofi_provider_include=farlink",
                "OMPI_MCA_btl=self,vader",
                "OMPI_MCA_osc=^ucx",
                "OMPI_MCA_bml_r2_show_unreach_errors=0",
                "FI_PROVIDER=farlink",
            ]
        );
    }

    #[test]
    fn mpich_is_left_no_other_network() {
        let words = words(&of_mpi(Mpi::Mpich, Path::new("/f")));
        let expected =
            ["FI_PROVIDER_PATH=/f", "MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1", "FI_PROVIDER=farlink"];
        assert_eq!(words, expected);
    }

    #[test]
    fn only_what_was_named_is_set() {
        assert_eq!(of_settings(&Settings::default()).unwrap(), []);
        let settings = Settings {
            transport: Some(Transport::Dc),
            rate: Some("9.58464gbit".parse().unwrap()),
            dcis: Some(initiators("3").unwrap()),
            dci_policy: Some("lru".parse().unwrap()),
            eager: Some("1.5MiB".parse().unwrap()),
            interface: Some("eth 0".to_owned()),
            stats: Some("/tmp/s".into()),
        };
        let set = words(&of_settings(&settings).unwrap());
        assert_eq!(
            set,
            [
                "FARLINK_TRANSPORT=dc",
                "FARLINK_RATE=9584640000bit",
                "FARLINK_DCIS=3",
                "FARLINK_DCI_POLICY=lru",
                "FARLINK_EAGER=1572864B",
                "FARLINK_INTERFACE=eth 0",
                "FARLINK_STATS=/tmp/s",
            ]
        );
        let relative = Settings { stats: Some("stats.jsonl".into()), ..Settings::default() };
        assert!(Path::new(&of_settings(&relative).unwrap()[0].value).is_absolute());
    }

    #[test]
    fn what_is_inherited_must_be_as_ranks_will_read_it() {
        let settings = Settings { eager: Some("1MiB".parse().unwrap()), ..Settings::default() };
        let (ours, _) = variables(Mpi::OpenMpi, Path::new("/f"), &settings).unwrap();
        let beside = |name, value| read(&ours, |asked| (asked == name).then(|| OsString::from(value)));
        assert!(beside("FARLINK_RATE", "10gbit").is_ok());
        let error = beside("FARLINK_RATE", "10").unwrap_err().to_string();
        assert!(error.contains("FARLINK_RATE") && error.contains("10"), "{error}");
        assert!(beside("FARLINK_SHM", "maybe").is_err());
        // What is named stands before it.
        assert!(beside("FARLINK_EAGER", "much").is_ok());
    }

    #[test]
    fn every_key_is_another() {
        let key = || {
            let (all, _) = variables(Mpi::OpenMpi, Path::new("/f"), &Settings::default()).unwrap();
            all.into_iter().find(|each| each.name == "FARLINK_JOB_KEY").unwrap().value
        };
        let (one, other) = (key(), key());
        assert_ne!(one, other);
        let text = one.to_str().unwrap();
        assert!(text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit()));
    }

    #[test]
    fn a_shell_reads_values_back() {
        let line = |value: &str| String::from_utf8(Variable::new("NAME", value).export()).unwrap();
        assert_eq!(line("^ucx,/a/b.c"), "export NAME=^ucx,/a/b.c\n");
        assert_eq!(line("a b"), "export NAME='a b'\n");
        assert_eq!(line("it's $HOME"), "export NAME='it'\\''s $HOME'\n");
        assert_eq!(line(""), "export NAME=''\n");
    }

    #[test]
    fn other_hosts_get_what_open_mpi_does_not_give_them() {
        let ours = [
            Variable::new("OMPI_MCA_pml", "cm"),
            Variable::new("FI_PROVIDER_PATH", "/f"),
            Variable::new("FARLINK_SHM", "0"),
        ];
        assert_eq!(handed_on(ours.iter()), ["FARLINK_SHM", "FI_PROVIDER_PATH"]);
    }

    #[test]
    fn what_stands_behind_the_launcher_is_what_ranks_would_read_and_what_was_asked_for() {
        let key = Variable::new("FARLINK_JOB_KEY", "0".repeat(64));
        let provider = |name| Variable::new(name, "farlink");
        let transport = Variable::new("FARLINK_TRANSPORT", "xrc");
        let ours = [key, transport, provider("FI_PROVIDER"), provider(PROVIDERS)];
        let agreed = |name: &str, value: &str| agree(&ours, &[(name.into(), value.into())], true);
        assert!(agree(&ours, &[("FI_PROVIDER".into(), "tcp".into())], false).is_ok());
        for (name, value) in
            [("FARLINK_TRANSPORT", "xrc"), ("FARLINK_SHM", "0"), ("OTHER", ""), ("FI_PROVIDER", "farlink")]
        {
            agreed(name, value).unwrap();
        }
        for (name, value, words) in [
            ("FARLINK_TRANSPORT", "rc", "rc behind the launcher, and xrc by"),
            ("FARLINK_SHM", "2", "FARLINK_SHM=\"2\""),
            ("FARLINK_RATE", "10", "unit"),
            ("FARLINK_JOB_KEY", "1", "leave it out"),
            ("FI_PROVIDER", "tcp", "go over Farlink by FI_PROVIDER=farlink alone"),
            (PROVIDERS_OF_MTL, "tcp", "is tcp behind the launcher"),
        ] {
            let error = format!("{:#}", agreed(name, value).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
