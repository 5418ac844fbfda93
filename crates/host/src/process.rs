//! This process and its host: CPU time, processors, names, limits, addresses.

use std::fs;
use std::io;
use std::net::IpAddr;

use farlink_wire::quantity::Nanos;
use nix::ifaddrs::getifaddrs;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, User, geteuid, gettid, initgroups, setresgid, setresuid, sysconf};

/// CPU time, user and system, of this process so far.
#[must_use]
pub fn cpu_of_process() -> Nanos {
    cpu(UsageWho::RUSAGE_SELF)
}

/// CPU time, user and system, of the calling thread so far.
#[must_use]
pub fn cpu_of_thread() -> Nanos {
    cpu(UsageWho::RUSAGE_THREAD)
}

/// CPU time, user and system, of one thread, which others of its process may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClock(ClockId);

impl ThreadClock {
    /// The calling thread's. It must not be read when that has ended: another may have its number then.
    #[must_use]
    pub fn of_this_thread() -> Self {
        // `MAKE_THREAD_CPUCLOCK` of the kernel's include/linux/posix-timers.h, of `CPUCLOCK_SCHED`.
        Self(ClockId::from_raw(!gettid().as_raw() << 3 | 0b110))
    }

    /// The thread's time so far.
    #[must_use]
    pub fn read(self) -> Nanos {
        let time = clock_gettime(self.0).map_or(0, |time| time.num_nanoseconds());
        Nanos(u64::try_from(time).unwrap_or(0))
    }
}

fn cpu(who: UsageWho) -> Nanos {
    // getrusage(2) fails for a bad `who` or pointer alone; nix makes neither.
    let micros =
        getrusage(who).map_or(0, |usage| (usage.user_time() + usage.system_time()).num_microseconds());
    Nanos(u64::try_from(micros).unwrap_or(0) * 1000)
}

/// Logical processors that this process may use, at least 1.
#[must_use]
pub fn cores() -> u32 {
    let allowed = sched_getaffinity(Pid::from_raw(0))
        .map(|set| (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).count());
    allowed.map_or(1, |count| u32::try_from(count).unwrap_or(1).max(1))
}

/// CPU time that this machine wanted and its host gave to others since it started, all processors together: `steal`
/// of proc_stat(5). `None` where nothing was ever stolen, as on a machine of one's own.
#[must_use]
pub fn stolen() -> Option<Nanos> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: u64 = text.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    let second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let nanos = ticks.checked_mul(1_000_000_000 / u64::try_from(second).ok()?.max(1))?;
    (nanos > 0).then_some(Nanos(nanos))
}

/// Memory that could be had without swapping (`MemAvailable` of proc_meminfo(5)), bytes.
#[must_use]
pub fn memory_available() -> Option<u64> {
    meminfo("MemAvailable:")
}

/// Bytes of memory that the machine has (`MemTotal` of proc(5)); `None` where the kernel does not say.
#[must_use]
pub fn memory_total() -> Option<u64> {
    meminfo("MemTotal:")
}

/// Bytes of a line of /proc/meminfo.
fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// Bytes of a page of memory.
#[must_use]
pub fn page_bytes() -> u64 {
    // sysconf(3) knows the size of a page everywhere; 4096 is that of every x86.
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
}

/// The kernel's release, as `uname -r` shows it.
#[must_use]
pub fn kernel_release() -> String {
    nix::sys::utsname::uname().map_or_else(|_| String::new(), |names| lossy(names.release()))
}

/// The host's name, as `uname -n` shows it.
#[must_use]
pub fn host_name() -> String {
    nix::sys::utsname::uname().map_or_else(|_| String::new(), |names| lossy(names.nodename()))
}

/// The kernel's name and the processor's, as `uname -sm` shows them: what runs on one host runs on another of the same.
#[must_use]
pub fn kind_of_host() -> String {
    let name = |names: nix::sys::utsname::UtsName| [lossy(names.sysname()), lossy(names.machine())].join(" ");
    nix::sys::utsname::uname().map_or_else(|_| String::new(), name)
}

fn lossy(text: &std::ffi::OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Names the monotonic clock: two processes of the same name read the same clock.
///
/// It is the boot, and the offset of the time namespace where there is one. Empty where it cannot be told.
#[must_use]
pub fn clock_name() -> String {
    let Ok(boot) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return String::new() };
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let shift: Vec<_> = offsets
        .lines()
        .filter_map(|line| line.strip_prefix("monotonic"))
        .flat_map(str::split_whitespace)
        .filter(|number| *number != "0")
        .collect();
    [&[boot.trim()], shift.as_slice()].concat().join("+")
}

/// Whether this process may do what root may, as far as its user goes.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Why this process goes on as who it was.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// There is no such user.
    #[error("there is no user {name:?}")]
    Unknown {
        /// As given.
        name: String,
    },
    /// Only root may become another.
    #[error("only root may become user {name:?}")]
    NotRoot {
        /// As given.
        name: String,
    },
    /// The kernel's own words.
    #[error("become user {name:?}")]
    System {
        /// As given.
        name: String,
        /// The kernel's own words.
        source: io::Error,
    },
}

/// The number of the user `name`.
///
/// # Errors
/// [`UserError`].
pub fn user_number(name: &str) -> Result<u32, UserError> {
    named(name).map(|user| user.uid.as_raw())
}

fn named(name: &str) -> Result<User, UserError> {
    let failed = |errno: nix::errno::Errno| UserError::System { name: name.to_owned(), source: errno.into() };
    User::from_name(name).map_err(failed)?.ok_or_else(|| UserError::Unknown { name: name.to_owned() })
}

/// Becomes the user `name`, with their groups and no right of before: all threads, for good.
///
/// # Errors
/// [`UserError`].
pub fn become_user(name: &str) -> Result<(), UserError> {
    let failed = |errno: nix::errno::Errno| UserError::System { name: name.to_owned(), source: errno.into() };
    let user = named(name)?;
    if !is_root() {
        return Err(UserError::NotRoot { name: name.to_owned() });
    }
    let c_name = std::ffi::CString::new(name).map_err(|_| UserError::Unknown { name: name.to_owned() })?;
    initgroups(&c_name, user.gid).map_err(failed)?;
    setresgid(user.gid, user.gid, user.gid).map_err(failed)?;
    setresuid(user.uid, user.uid, user.uid).map_err(failed)
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The kernel's, where it has no source of them.
pub fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    })?;
    Ok(bytes)
}

/// Raises the number of files that this process may hold open as far as it may by itself, and no further than `enough`; returns it. It
/// is never lowered.
///
/// # Errors
/// The kernel's.
pub fn raise_descriptor_limit(enough: u64) -> io::Result<u64> {
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let limit = most.min(enough).max(now);
    setrlimit(Resource::RLIMIT_NOFILE, limit, most)?;
    Ok(limit)
}

/// Whether a program that this process starts, as ssh, can ask a person for a password: there is a terminal, or a program for it.
#[must_use]
pub fn may_be_asked() -> bool {
    fs::File::open("/dev/tty").is_ok() || std::env::var_os("SSH_ASKPASS").is_some()
}

/// The IP addresses of this host's interfaces.
///
/// # Errors
/// The kernel's.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    Ok(getifaddrs()?.filter_map(address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_at_least_the_time_of_its_thread() {
        let thread = cpu_of_thread();
        assert!(cpu_of_process() >= thread);
    }

    #[test]
    fn the_host_has_a_name_a_kernel_a_clock_and_a_processor() {
        assert!(cores() >= 1);
        assert!(kernel_release().contains('.'));
        assert!(!host_name().is_empty());
        assert_eq!(clock_name().split('+').next().unwrap().len(), 36);
    }

    #[test]
    fn nobody_becomes_a_user_that_is_not_there() {
        let error = become_user("no such user").unwrap_err().to_string();
        assert_eq!(error, "there is no user \"no such user\"");
        assert_eq!(user_number("no such user").unwrap_err().to_string(), error);
        assert_eq!(user_number("root").unwrap(), 0);
    }

    #[test]
    fn the_loopback_address_is_one_of_the_addresses() {
        assert!(addresses().unwrap().iter().any(IpAddr::is_loopback));
    }
}
