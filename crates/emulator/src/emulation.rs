//! An emulation that runs: hosts, engines between them, and what may be asked of it meanwhile.

use std::io;
use std::process::{Child, Command as Program};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::congestion::{self, CongestionError, Loaded};
use farlink_host::contain::{self, Rights};
use farlink_host::kernel_memory::KernelMemory;
use farlink_host::namespace::{Kind, NamespaceError, Namespaces};
use farlink_host::netlink::Netlink;
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_host::scheduling::Scheduling;
use farlink_host::tun::Tun;
use farlink_wire::quantity::Bytes;

use crate::arena::{self, Arena, Spare};
use crate::change::Target;
use crate::control::{self, ControlError};
use crate::engine::{Command, Engine, Shown};
use crate::hosts::{self, Host, HostError};
use crate::plan::{self, Plan, PlanError};
use crate::state::State;
use crate::topology::Topology;

mod answers;
mod change;
mod view;

pub use change::ChangeError;
use view::Asker;

/// A connection that stands, as long as this lives and its process does.
#[derive(Debug)]
pub struct Emulation {
    inner: Arc<Inner>,
    /// What an engine ended with.
    ended: Arc<Mutex<Option<io::Error>>>,
}

/// What the control threads share.
#[derive(Debug)]
struct Inner {
    /// As asked at the start, or since for the whole connection.
    plan: Mutex<Plan>,
    hosts: Vec<Guest>,
    engines: Vec<Controls>,
    notes: Vec<String>,
    scheduling: Scheduling,
    /// The hosts' default congestion control, where the kernel lacks it.
    _loaded: Option<Loaded>,
    /// For the hosts' queues and buffers, where that was asked for.
    _touched: Option<KernelMemory>,
}

/// A host without its listener, which its control thread has.
#[derive(Debug)]
struct Guest {
    name: String,
    namespaces: Namespaces,
    netlink: Mutex<Netlink>,
    index: u32,
}

/// How an engine is commanded.
#[derive(Debug)]
struct Controls {
    commands: Sender<Command>,
    wake: Wake,
    spare: Spare,
    /// Bytes of memory that were sent.
    fed: Mutex<u64>,
    /// How many there are of these, of which each takes its part of the machine's memory.
    engines: u64,
}

/// Why an emulation does not stand.
#[derive(Debug, thiserror::Error)]
pub enum EmulationError {
    /// It cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Its hosts' default congestion control cannot be had.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// A host could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Its name is taken, or its sockets failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Its own namespaces could not be opened.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A thread could not be started.
    #[error("start a thread")]
    Thread(#[source] io::Error),
}

impl Inner {
    /// Which links it has.
    fn topology(&self) -> Topology {
        Topology::of(self.hosts.len())
    }
}

impl Emulation {
    /// Makes the hosts of `plan` and joins them, by the right that [`contain`] gave.
    ///
    /// # Errors
    /// [`EmulationError`]; nothing is left of what was made.
    pub fn start(plan: Plan, socket: &str, rights: Rights) -> Result<Self, EmulationError> {
        plan.check()?;
        // First, so that a taken name costs nothing.
        let listener = control::listen(socket, &plan.name)?;
        let (made, loaded) = make(&plan)?;
        let tuns: Vec<Arc<Tun>> = made.iter().map(|host| host.tun.clone()).collect();
        let reads: Vec<Vec<usize>> =
            if plan.is_star() { vec![(0..tuns.len()).collect()] } else { vec![vec![0], vec![1]] };
        let (granted, grants) = channel();
        let ended: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let mut engines = Vec::new();
        for reads in reads {
            engines.push(Controls::start(&plan, &tuns, &reads, &granted, ended.clone())?);
        }
        drop(granted);
        let scheduling = grants.iter().max_by_key(|granted| *granted != Scheduling::Fifo);
        let mut notes: Vec<String> = made.iter().flat_map(|host| host.notes.clone()).collect();
        notes.sort();
        notes.dedup();
        let touched = plan.prefault.and_then(|wanted| touch(wanted, &mut notes));
        let outer: &[Kind] = match rights {
            Rights::Root => &[Kind::Pid],
            Rights::User => &[Kind::User, Kind::Pid],
        };
        let (mut guests, mut listeners) = (Vec::new(), Vec::new());
        for Host { name, namespaces, tun, netlink, listener, .. } in made {
            let namespaces = namespaces.with(Namespaces::open(outer)?);
            guests.push(Guest { name, namespaces, netlink: Mutex::new(netlink), index: tun.index() });
            listeners.push(listener);
        }
        let inner = Arc::new(Inner {
            plan: Mutex::new(plan),
            hosts: guests,
            engines,
            notes,
            scheduling: scheduling.unwrap_or(Scheduling::Fifo),
            _loaded: loaded,
            _touched: touched,
        });
        answers::serve(&inner, listener, listeners).map_err(EmulationError::Thread)?;
        Ok(Self { inner, ended })
    }

    /// Why nothing passes any more, where that is so: a host's device is gone, or there is no memory. This process is sent SIGTERM then,
    /// which whoever ignores it does not hear.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.inner.state(&Asker::Owner(&Target::All))
    }

    /// Starts `program` on host `index`.
    ///
    /// # Errors
    /// As [`Program::spawn`].
    pub fn spawn(&self, index: usize, program: &mut Program) -> io::Result<Child> {
        self.inner.hosts[index].namespaces.spawn(program)
    }

    /// The addresses, for the environment of `program`, which is then to be started on a host.
    pub fn equip(&self, program: &mut Program) {
        control::set_environment(program, &self.state());
    }
}

impl Drop for Emulation {
    /// What is under way ends with the connection. Else connections that nobody has any more would hold what they could not send, gigabytes,
    /// and send it again for minutes: under that memory pressure every other connection of the machine crawls.
    fn drop(&mut self) {
        for host in &self.inner.hosts {
            // Nothing depends on it but how soon.
            let _ = host.namespaces.set_sysctl("net.ipv4.tcp_orphan_retries", "1");
        }
    }
}

/// The hosts of `plan`, and their congestion control where this process has loaded it.
fn make(plan: &Plan) -> Result<(Vec<Host>, Option<Loaded>), EmulationError> {
    let Some(name) = plan.congestion.as_deref() else { return Ok((hosts::make(plan)?, None)) };
    for _ in 1..ATTEMPTS {
        let loaded = congestion::ensure(name)?;
        let made = hosts::make(plan);
        if loaded.is_some() || congestion::is_available(name) {
            return Ok((made?, loaded));
        }
        // Another process had loaded it, and has ended meanwhile: now it is this one's to load.
    }
    let loaded = congestion::ensure(name)?;
    Ok((hosts::make(plan)?, loaded))
}

/// How often it is looked for a congestion control that comes and goes.
const ATTEMPTS: usize = 4;

/// Touches `wanted` of the kernel's memory, or as much as is sensible and allowed, which goes to the notes.
fn touch(wanted: Bytes, notes: &mut Vec<String>) -> Option<KernelMemory> {
    let most = process::memory_available().map_or(u64::MAX, |available| available / 2);
    let touched = KernelMemory::touch(wanted.0.min(most)).ok();
    let had = touched.as_ref().map_or(0, KernelMemory::touched);
    if had < wanted.0.min(most) {
        notes.push(format!(
            "prefault: {} of {wanted} touched, for want of descriptors: run as root, or raise ulimit -n",
            Bytes(had)
        ));
    } else if most < wanted.0 {
        notes.push(format!("prefault: {} of {wanted} touched: half of what is free", Bytes(had)));
    }
    touched
}

impl Controls {
    fn start(
        plan: &Plan,
        tuns: &[Arc<Tun>],
        reads: &[usize],
        granted: &Sender<Scheduling>,
        ended: Arc<Mutex<Option<io::Error>>>,
    ) -> Result<Self, EmulationError> {
        let wake = Wake::new().map_err(EmulationError::Thread)?;
        let (commands, receiver) = channel();
        let (arena, spare) = Arena::new();
        let engine = Engine::new(tuns, reads, plan.conditions(), plan.seed, arena, receiver, wake.clone());
        let granted = granted.clone();
        let name = format!("link {}", if plan.is_star() { "all" } else { ["a-b", "b-a"][reads[0]] });
        std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                if let Err(error) = engine.run(granted) {
                    *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    // Whoever has the emulation waits for signals.
                    contain::terminate(std::process::id());
                }
            })
            .map_err(EmulationError::Thread)?;
        let engines = if plan.is_star() { 1 } else { tuns.len() as u64 };
        let controls = Self { commands, wake, spare, fed: Mutex::new(0), engines };
        let links = if plan.is_star() { plan.topology().links() } else { reads.len() };
        controls.feed(plan.conditions().held_bytes().unwrap_or(0).saturating_mul(links as u64));
        Ok(controls)
    }

    fn ask(&self, command: Command) {
        // An engine that ended takes the emulation with it.
        let _ = self.commands.send(command);
        self.wake.raise();
    }

    /// Sees to it that the engine has the memory for the bytes that its links hold, without waiting for it.
    fn feed(&self, held: u64) {
        // A tenth for what is lost at the ends of chunks and for headers.
        let needed = (held + held / 10 + LEAST_MEMORY).min(plan::MOST_HELD);
        let mut fed = self.fed.lock().unwrap_or_else(PoisonError::into_inner);
        let more = needed.saturating_sub(*fed);
        if more > 0 {
            *fed += more;
            let spare = self.spare.clone();
            // Detached: it ends when it has sent all, or nobody takes it.
            let engines = self.engines;
            // Where there is no thread for it memory is mapped when it is needed.
            let _ = std::thread::Builder::new().spawn(move || arena::feed(&spare, more, engines));
        }
    }

    fn show(&self) -> Option<Shown> {
        let (to, shown) = channel();
        self.ask(Command::Show(to));
        shown.recv().ok()
    }
}

/// Memory for a connection without delay, in which packets wait for the scheduler alone.
const LEAST_MEMORY: u64 = 8 << 20;
