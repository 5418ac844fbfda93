//! Network, UTS and mount namespaces: what makes a process believe that it is on a host of its own.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{close, pipe2};

/// The namespaces of one host, held open: they last as long as this or a process in them does.
#[derive(Debug)]
pub struct Namespaces {
    kinds: Vec<(Kind, OwnedFd)>,
}

/// A kind of namespace, in the order in which they must be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Users, and the right to enter the others.
    User,
    /// Processes: for children to come.
    Pid,
    /// Interfaces, addresses, ports.
    Net,
    /// The host's name.
    Uts,
    /// Mounts.
    Mount,
}

/// Why a host could not be made or entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// No namespaces of its own.
    #[error("new namespaces for a host")]
    Unshare(#[source] io::Error),
    /// Its name was refused.
    #[error("host name {name:?}")]
    Name {
        /// As given.
        name: String,
        /// As the kernel said it.
        source: io::Error,
    },
    /// Something could not be mounted.
    #[error("mount {what} on {}", at.display())]
    Mount {
        /// What.
        what: &'static str,
        /// Where.
        at: PathBuf,
        /// As the kernel said it.
        source: io::Error,
    },
    /// A namespace's file could not be opened.
    #[error("open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// As the kernel said it.
        source: io::Error,
    },
    /// A namespace could not be entered.
    #[error("enter the {kind:?} namespace")]
    Enter {
        /// Which.
        kind: Kind,
        /// As the kernel said it.
        source: io::Error,
    },
}

impl Namespaces {
    /// Moves the calling thread to new network, UTS and mount namespaces and makes a host of them: its name,
    /// `/etc/hosts` with the text `hosts`, and a `/dev/shm`, `/proc` and `/sys` of its own.
    ///
    /// The thread stays there: call it on one that ends soon, and keep what this returns.
    ///
    /// # Errors
    /// [`NamespaceError`] naming the step.
    pub fn new_host(name: &str, hosts: &str) -> Result<Self, NamespaceError> {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWNS)
            .map_err(|errno| NamespaceError::Unshare(errno.into()))?;
        nix::unistd::sethostname(name)
            .map_err(|errno| NamespaceError::Name { name: name.to_owned(), source: errno.into() })?;
        // Mounts of the outside still come in (a disk that is unmounted there must not stay busy here); none go out.
        mount_on(None, "/", None, MsFlags::MS_REC | MsFlags::MS_SLAVE, None, "as slave")?;
        mount_on(Some("tmpfs"), "/dev/shm", Some("tmpfs"), SHM_FLAGS, Some("mode=1777"), "tmpfs")?;
        let text = Path::new("/dev/shm/.hosts");
        fs::write(text, hosts).map_err(|source| NamespaceError::Open { path: text.to_owned(), source })?;
        mount_on(Some("/dev/shm/.hosts"), "/etc/hosts", None, MsFlags::MS_BIND, None, "the hosts' names")?;
        // The mount keeps the file; nothing else needs its name.
        fs::remove_file(text).map_err(|source| NamespaceError::Open { path: text.to_owned(), source })?;
        // Where a container masks parts of /proc or /sys the kernel refuses new ones: the outside's then stay, which
        // show the wrong processes and interfaces and are otherwise the same.
        let _ = mount_on(Some("proc"), "/proc", Some("proc"), PROC_FLAGS, None, "proc");
        let _ = mount_on(Some("sysfs"), "/sys", Some("sysfs"), PROC_FLAGS, None, "sysfs");
        Self::open(&[Kind::Net, Kind::Uts, Kind::Mount])
    }

    /// Opens the calling thread's namespaces of the given kinds.
    ///
    /// # Errors
    /// [`NamespaceError::Open`].
    pub fn open(kinds: &[Kind]) -> Result<Self, NamespaceError> {
        let open = |&kind: &Kind| {
            let path = Path::new("/proc/thread-self/ns").join(kind.name());
            match File::open(&path) {
                Ok(file) => Ok((kind, OwnedFd::from(file))),
                Err(source) => Err(NamespaceError::Open { path, source }),
            }
        };
        Ok(Self { kinds: kinds.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// The same from descriptors that another process sent, by name.
    ///
    /// `None` where a name is no kind.
    #[must_use]
    pub fn from_named(named: Vec<(String, OwnedFd)>) -> Option<Self> {
        let kinds = named
            .into_iter()
            .map(|(name, fd)| Some((Kind::named(&name)?, fd)))
            .collect::<Option<Vec<_>>>()?;
        Some(Self { kinds })
    }

    /// Each namespace's name and descriptor, to send to another process.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        self.kinds.iter().map(|(kind, fd)| (kind.name(), fd.as_fd()))
    }

    /// These and `others`.
    #[must_use]
    pub fn with(mut self, others: Self) -> Self {
        self.kinds.extend(others.kinds);
        self.kinds.sort_by_key(|(kind, _)| *kind);
        self
    }

    /// Moves the calling process to the user and PID namespaces among these (PID: its children to come).
    ///
    /// # Errors
    /// [`NamespaceError::Enter`].
    pub fn enter_process(&self) -> Result<(), NamespaceError> {
        for (kind, fd) in self.kinds.iter().filter(|(kind, _)| *kind <= Kind::Pid) {
            setns(fd, kind.flag())
                .map_err(|errno| NamespaceError::Enter { kind: *kind, source: errno.into() })?;
        }
        Ok(())
    }

    /// Sets a sysctl of the network namespace among these, named as sysctl(8) does.
    ///
    /// # Errors
    /// The kernel's; also where there is no network namespace among these.
    pub fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let network = self.kinds.iter().find(|(kind, _)| *kind == Kind::Net);
        let (kind, fd) = network.ok_or(io::ErrorKind::NotFound)?;
        let set = || -> io::Result<()> {
            setns(fd, kind.flag())?;
            set_sysctl(name, value)
        };
        // A thread moves there, and ends there.
        std::thread::scope(|scope| scope.spawn(set).join())
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    /// Starts `command` in the network, UTS and mount namespaces among these, in the present directory where that is there.
    ///
    /// It is killed when the calling thread ends, whatever ends that.
    ///
    /// # Errors
    /// As [`Command::spawn`]; entering the namespaces is part of it.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let entered: Vec<_> = self.kinds.iter().filter(|(kind, _)| *kind > Kind::Pid).collect();
        let entered: Vec<_> = entered
            .into_iter()
            .map(|(kind, fd)| Ok((kind.flag(), fd.try_clone()?)))
            .collect::<io::Result<_>>()?;
        let directory = std::env::current_dir().ok();
        let (alive, keeper) = pipe2(OFlag::O_CLOEXEC)?;
        let kept = keeper.as_raw_fd();
        let enter = move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // Whoever starts it may have ended before that: then nobody has the pipe's other end, but for the copy that came with the fork.
            close(kept)?;
            if poll(&mut [PollFd::new(alive.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? != 0 {
                return Err(Errno::EOWNERDEAD.into());
            }
            for (flag, fd) in &entered {
                setns(fd, *flag)?;
            }
            // Entering a mount namespace leads to its root.
            if let Some(directory) = &directory {
                let _ = nix::unistd::chdir(directory.as_path());
            }
            SigSet::empty().thread_set_mask()?;
            Ok(())
        };
        // SAFETY: `enter` runs between fork and exec: it makes system calls alone, allocates nothing (the one path
        // is short enough for nix's buffer on the stack, or fails) and takes no lock.
        unsafe { command.pre_exec(enter) };
        let started = command.spawn();
        drop(keeper);
        started
    }
}

impl Kind {
    const ALL: [Self; 5] = [Self::User, Self::Pid, Self::Net, Self::Uts, Self::Mount];

    /// The file's name under /proc/PID/ns.
    const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pid => "pid",
            Self::Net => "net",
            Self::Uts => "uts",
            Self::Mount => "mnt",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    const fn flag(self) -> CloneFlags {
        match self {
            Self::User => CloneFlags::CLONE_NEWUSER,
            Self::Pid => CloneFlags::CLONE_NEWPID,
            Self::Net => CloneFlags::CLONE_NEWNET,
            Self::Uts => CloneFlags::CLONE_NEWUTS,
            Self::Mount => CloneFlags::CLONE_NEWNS,
        }
    }
}

fn mount_on(
    source: Option<&str>,
    at: &str,
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
    what: &'static str,
) -> Result<(), NamespaceError> {
    mount(source, at, kind, flags, data).map_err(|errno| NamespaceError::Mount {
        what,
        at: at.into(),
        source: errno.into(),
    })
}

const SHM_FLAGS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
const PROC_FLAGS: MsFlags = SHM_FLAGS.union(MsFlags::MS_NOEXEC);

/// Sets a sysctl of the calling thread's network namespace, named as sysctl(8) does.
///
/// # Errors
/// As writing its file under `/proc/sys`.
pub fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new("/proc/sys").join(name.replace('.', "/")), value)
}

/// The effective user, as the caller's user namespace numbers them.
#[must_use]
pub fn user() -> libc::uid_t {
    nix::unistd::geteuid().as_raw()
}
