//! Congestion controls: the kernel's, and ours, which are loaded into it on demand as BPF programs (`bpf/`).
//!
//! A loaded one is there for every network namespace, under its name, for as long as its [`Loaded`] lives; connections
//! that chose it keep it until they end. Nothing is pinned: the kernel drops it with the process, however that ends.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use farlink_wire::record::CongestionOrigin;
#[cfg(feature = "bpf")]
use libbpf_rs::{MapCore, MapType, ObjectBuilder};
#[cfg(feature = "bpf")]
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::kernel_version::KernelVersion;
use crate::{process, socket};

mod lent;

use lent::Lent;

/// Why a congestion control cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CongestionError {
    /// Neither the kernel nor we have one of that name.
    #[error("there is no congestion control {name:?}: available are {}", known().join(", "))]
    Unknown {
        /// As asked.
        name: String,
    },
    /// For the administrator alone.
    #[error(
        "congestion control {name:?} is not allowed to ordinary users: \
         add it there to `sysctl net.ipv4.tcp_allowed_congestion_control`"
    )]
    Forbidden {
        /// As asked.
        name: String,
    },
    /// Ours could not be loaded.
    #[error("congestion control {name:?} is not in this kernel and could not be loaded: {reason}")]
    NotLoaded {
        /// As asked.
        name: String,
        /// What is missing, and the mend.
        reason: String,
    },
}

impl CongestionError {
    /// What is missing and the mend, without the name.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Unknown { .. } => "nobody knows it",
            Self::Forbidden { .. } => "not allowed to ordinary users",
            Self::NotLoaded { reason, .. } => reason,
        }
    }

    /// Whether another user could have it.
    #[must_use]
    pub fn is_for_want_of_rights(&self) -> bool {
        match self {
            Self::Unknown { .. } => false,
            Self::Forbidden { .. } => true,
            Self::NotLoaded { reason, .. } => reason == NO_RIGHT,
        }
    }
}

/// A congestion control that this process loaded; dropped, no further connection can choose it.
pub struct Loaded {
    name: String,
    /// The link before the object that it is of.
    #[cfg(feature = "bpf")]
    _program: (libbpf_rs::Link, libbpf_rs::Object),
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loaded").field(&self.name).finish()
    }
}

// SAFETY: libbpf's objects may be used by any one thread at a time, and nothing but dropping uses these.
#[cfg(feature = "bpf")]
unsafe impl Send for Loaded {}
// SAFETY: as above; a shared reference gives no access to them.
#[cfg(feature = "bpf")]
unsafe impl Sync for Loaded {}

/// Chooses `name` for the connection of `socket`: as the kernel has it, by a module of the kernel, or by loading ours,
/// which goes to `loaded` and can be chosen for as long as that lives.
///
/// # Errors
/// [`CongestionError`], with the reason and the mend.
pub fn choose(socket: impl AsFd, name: &str, loaded: &mut Option<Loaded>) -> Result<(), CongestionError> {
    let set = || socket::set_congestion(&socket, name);
    let mut set_at_last = set();
    // Who loaded it may end between a look and a choice; then it is ours to load.
    for _ in 0..ATTEMPTS {
        if !set_at_last.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break;
        }
        if let Some(fresh) = ensure(name)? {
            *loaded = Some(fresh);
        }
        set_at_last = set();
    }
    let name = name.to_owned();
    set_at_last.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => CongestionError::Forbidden { name },
        _ => CongestionError::NotLoaded { name, reason: error.to_string() },
    })
}

/// Makes sure that connections can choose `name`; see [`choose`].
///
/// # Errors
/// [`CongestionError`], with the reason and the mend.
pub fn ensure(name: &str) -> Result<Option<Loaded>, CongestionError> {
    if is_available(name) || load_module(name) {
        return Ok(None);
    }
    let Some(found) = program(name) else { return Err(CongestionError::Unknown { name: name.to_owned() }) };
    let failed = |reason| CongestionError::NotLoaded { name: name.to_owned(), reason };
    let object = found.map_err(|reason| failed(reason.to_owned()))?;
    if let Some(lent) = Lent::to(name)
        && !is_available(lent.by)
        && !load_module(lent.by)
    {
        // Who may not load a module may not load ours.
        could_load(name)?;
        return Err(failed(lent.none.to_owned()));
    }
    could_load(name)?;
    match load(name, object) {
        Ok(loaded) => Ok(Some(loaded)),
        // Another process was faster; the kernel takes one of a name.
        Err(_) if is_available(name) => Ok(None),
        Err(error) => Err(failed(format!("{error:#}; {}", too_old(name)))),
    }
}

/// Whether `name` is one of ours that is not there, and that could be loaded, unless the kernel has a module of that name: either takes
/// tens of milliseconds.
#[must_use]
pub fn is_to_be_loaded(name: &str) -> bool {
    could_load(name).is_ok() && !is_available(name)
}

/// What `ensure` would do with `name`, without doing it: why it could not load ours, where that is known.
///
/// # Errors
/// [`CongestionError`] where it is known that it would fail.
pub fn could_load(name: &str) -> Result<(), CongestionError> {
    let failed =
        |reason: &str| CongestionError::NotLoaded { name: name.to_owned(), reason: reason.to_owned() };
    match program(name) {
        None => Err(CongestionError::Unknown { name: name.to_owned() }),
        Some(Err(reason)) => Err(failed(reason)),
        Some(Ok(_)) if !least_kernel(name).may_be_here() => Err(failed(&too_old(name))),
        Some(Ok(_)) if !Path::new(BTF).exists() => Err(failed(NO_BTF)),
        Some(Ok(_)) if !may_load() => Err(failed(NO_RIGHT)),
        Some(Ok(_)) => match Lent::to(name) {
            // That it is not there does not tell: it may be a module.
            Some(lent) if is_available(lent.by) && !lent.is_here() => Err(failed(lent.other)),
            _ => Ok(()),
        },
    }
}

/// Where `name`, which is available, comes from; `None` where this process may not know.
#[must_use]
pub fn origin(name: &str) -> Option<CongestionOrigin> {
    if program(name).is_none() {
        return Some(CongestionOrigin::Kernel);
    }
    origin_of_ours(name)
}

/// Whether this user may choose one that is available: an ordinary one not every one (`net.ipv4.tcp_allowed_congestion_control`).
#[must_use]
pub fn is_allowed(name: &str) -> bool {
    let probe = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    let chosen = probe.and_then(|probe| socket::set_congestion(&probe, name));
    !chosen.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The names of our own.
pub fn ours() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|(name, _)| *name)
}

/// The names that can be asked for on this host: the kernel's, and ours that could be loaded.
#[must_use]
pub fn known() -> Vec<String> {
    let mut names = socket::available_congestion();
    names.extend(ours().filter(|name| could_load(name).is_ok()).map(str::to_owned));
    names.sort();
    names.dedup();
    names
}

/// Whether connections can choose `name` now.
#[must_use]
pub fn is_available(name: &str) -> bool {
    socket::available_congestion().iter().any(|available| available == name)
}

/// Asks the kernel for its module, as it loads it for a socket that chooses it.
fn load_module(name: &str) -> bool {
    let scratch = socket::unconnected(([127, 0, 0, 1], 0).into());
    scratch.is_ok_and(|socket| socket::set_congestion(&socket, name).is_ok())
}

fn program(name: &str) -> Option<Result<&'static [u8], &'static str>> {
    PROGRAMS.iter().find(|(known, _)| *known == name).map(|(_, program)| *program)
}

#[cfg(feature = "bpf")]
fn load(name: &str, object: &[u8]) -> Result<Loaded, libbpf_rs::Error> {
    // What libbpf would write to stderr is for us to say.
    libbpf_rs::set_print(None);
    let mut object = ObjectBuilder::default().open_memory(object)?.load()?;
    let map = object.maps_mut().find(|map| map.map_type() == MapType::StructOps);
    let link =
        map.ok_or_else(|| libbpf_rs::Error::from_raw_os_error(Errno::EINVAL as i32))?.attach_struct_ops()?;
    Ok(Loaded { name: name.to_owned(), _program: (link, object) })
}

#[cfg(not(feature = "bpf"))]
fn load(_name: &str, _object: &[u8]) -> Result<Loaded, io::Error> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether a program of ours is what the kernel knows by that name.
#[cfg(feature = "bpf")]
fn origin_of_ours(name: &str) -> Option<CongestionOrigin> {
    if !may_load() {
        return None;
    }
    let mut maps = libbpf_rs::query::MapInfoIter::default();
    let is_ours = maps.any(|map| map.ty == MapType::StructOps && map.name == *format!("{PREFIX}{name}"));
    Some(if is_ours { CongestionOrigin::Bpf } else { CongestionOrigin::Kernel })
}

#[cfg(not(feature = "bpf"))]
fn origin_of_ours(_name: &str) -> Option<CongestionOrigin> {
    None
}

/// Whether this process has the rights that loading needs, in the first user namespace: root of another has not.
fn may_load() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let needed = 1 << CAP_BPF | 1 << CAP_NET_ADMIN;
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rights & needed == needed && users.split_whitespace().eq(["0", "0", "4294967295"])
}

fn too_old(name: &str) -> String {
    format!("it needs Linux {} or later, and this is {}", least_kernel(name), process::kernel_release())
}

/// The kernel that our program of that name needs. One has a `cong_control` that is told what was acknowledged
/// ("tcp: Add new args for cong_control in tcp_congestion_ops" in the kernel's log); all are attached by a link.
fn least_kernel(name: &str) -> KernelVersion {
    if name == "circuit" || Lent::to(name).is_some() { KernelVersion(6, 10) } else { KernelVersion(6, 4) }
}

/// How often another process may come and go meanwhile.
const ATTEMPTS: usize = 3;

/// capability.h.
const CAP_NET_ADMIN: u32 = 12;
const CAP_BPF: u32 = 39;

/// Our programs' maps are called by this and the name.
#[cfg(feature = "bpf")]
const PREFIX: &str = "fl_";

/// Where the kernel describes its own types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

const NO_BTF: &str = "the kernel does not describe its types (no /sys/kernel/btf/vmlinux): run one built with CONFIG_DEBUG_INFO_BTF";

const NO_RIGHT: &str = "that needs CAP_BPF and CAP_NET_ADMIN: run farlink as root (a server without --user)";

/// Our programs by name, or why they are not there.
const PROGRAMS: &[(&str, Result<&[u8], &str>)] = &include!(concat!(env!("OUT_DIR"), "/programs.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_needs_no_loading() {
        assert!(ensure("reno").unwrap().is_none());
        assert_eq!(origin("reno"), Some(CongestionOrigin::Kernel));
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        let refused = ensure("none_such").unwrap_err().to_string();
        assert!(refused.contains("\"none_such\"") && refused.contains("reno"), "{refused}");
        assert_eq!(could_load("none_such").unwrap_err(), ensure("none_such").unwrap_err());
    }

    #[test]
    fn a_kernel_that_is_too_old_is_named_with_what_the_program_needs() {
        for name in ["circuit", "bbr_tso", "suss"] {
            assert!(too_old(name).starts_with("it needs Linux 6.10 or later, and this is "));
        }
        assert!(too_old("htcp").starts_with("it needs Linux 6.4 or later, and this is "));
    }

    #[test]
    fn ours_can_be_had_or_the_mend_is_said() {
        for name in ours() {
            match (could_load(name), ensure(name)) {
                (Ok(()), Ok(loaded)) => {
                    assert!(is_available(name));
                    if loaded.is_some() {
                        assert_eq!(origin(name), Some(CongestionOrigin::Bpf));
                    }
                }
                // What it stands on may be a module, of which nothing is known before it is there.
                (Ok(()), Err(_)) if Lent::to(name).is_some_and(|lent| !is_available(lent.by)) => {}
                // The kernel's own of that name needs none of ours.
                (Err(_), Ok(None)) => {}
                (could, ensured) => assert_eq!(could.unwrap_err(), ensured.unwrap_err()),
            }
        }
    }
}
