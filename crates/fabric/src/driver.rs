//! Who drives an endpoint: the application's threads whenever they call, and the progress thread when they do not.

use std::env;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use farlink_flow::fabric::endpoint::Endpoint;
use farlink_flow::fabric::operation::HostId;
use farlink_flow::fabric::settings::{SettingError, Settings};
use farlink_host::alarm::Alarm;
use farlink_host::clock::monotonic;
use farlink_host::datagram::Datagrams;
use farlink_host::origin::Origin;
use farlink_host::precise::wait_readable;
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_wire::fabric::address::Address;
use farlink_wire::quantity::Nanos;

use crate::complaint::{chain, complain, complain_of};
use crate::drivers::Drive;
use crate::engine::Engine;
use crate::entry::{Code, check_origin, lock};
use crate::nearby::Nearby;
use crate::peers::identity;
use crate::proof;
use crate::statistics::Statistics;

/// An endpoint's driver.
#[derive(Debug)]
pub(crate) struct Driver {
    engine: Mutex<Engine>,
    address: Address,
    settings: Settings,
    /// What is watched in sleep: the socket, and the neighbours where there are any.
    watched: Vec<OwnedFd>,
    /// Wakes the progress thread.
    wake: Wake,
    /// Until when the progress thread stays out of the way of an application that calls, nanoseconds of the monotonic clock.
    attended_until: AtomicU64,
    /// Wakes the progress thread then.
    alarm: Alarm,
    /// Whether the progress thread sleeps until something comes. What the application takes does not wake it, nor would neighbours that
    /// came since.
    asleep: AtomicBool,
    enabled: AtomicBool,
    stopping: AtomicBool,
    /// A process that was forked has the socket, the rings and all numbers of its parent's: it would use them a second time.
    origin: Origin,
}

impl Driver {
    /// One of a new endpoint, as the environment says.
    pub(crate) fn open() -> Result<Arc<Self>, Code> {
        let settings = Settings::from_variables(env::var_os).map_err(|error| {
            complain_of(&error);
            if matches!(error, SettingError::NoKey) { Code::NO_KEY } else { Code::INVALID }
        })?;
        let speaker = speaker(settings.rank);
        Self::with(settings).map_err(|error| {
            complain(format_args!("{speaker}: {}", chain(&error)));
            Code::OTHER
        })
    }

    /// One of a new endpoint, as `settings` say.
    pub(crate) fn with(settings: Settings) -> Result<Arc<Self>, OpenError> {
        let ip = farlink_host::network::address(settings.interface.as_deref())?;
        let datagrams =
            Datagrams::open(ip, SOCKET_BUFFER).map_err(|source| OpenError::Socket { address: ip, source })?;
        let random = || process::random().map(u64::from_be_bytes).map_err(OpenError::System);
        let (endpoint, seed) = (random()?, random()?);
        let address = Address {
            endpoint,
            host: host().map_err(OpenError::System)?.0,
            at: datagrams.address(),
            process: std::process::id(),
            rank: settings.rank.and_then(|rank| u32::try_from(rank).ok()),
        };
        let me = identity(&address);
        let nearby = if settings.shared_memory {
            Some(Nearby::open(me.endpoint, settings.key, settings.sharers).map_err(OpenError::System)?)
        } else {
            None
        };
        let mut watched = vec![datagrams.as_fd().try_clone_to_owned().map_err(OpenError::System)?];
        if let Some(nearby) = &nearby {
            watched.push(nearby.descriptor().map_err(OpenError::System)?);
        }
        let speaker = speaker(settings.rank);
        let statistics = Statistics::of(&settings, seed, &speaker);
        let now = monotonic();
        let machine = Endpoint::new(now, settings.of_endpoint(datagrams.payload(), seed), me);
        Ok(Arc::new(Self {
            engine: Mutex::new(Engine::new(now, machine, datagrams, nearby, speaker, statistics)),
            address,
            settings,
            watched,
            wake: Wake::new().map_err(OpenError::System)?,
            attended_until: AtomicU64::new(0),
            alarm: Alarm::new().map_err(OpenError::System)?,
            asleep: AtomicBool::new(false),
            enabled: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            origin: Origin::here().map_err(OpenError::System)?,
        }))
    }

    /// Where it is.
    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    /// Lets the application post, where enough is bound.
    pub(crate) fn enable(&self) -> Result<(), Code> {
        lock(&self.engine)?.is_bound()?;
        if let Some(directory) = &self.settings.proof
            && let Err(error) = proof::leave(directory, self.address.endpoint, &self.settings)
        {
            complain(format_args!("write to FARLINK_PROOF {}: {error}", directory.display()));
        }
        if let Some(statistics) = lock(&self.engine)?.statistics() {
            statistics.try_file();
        }
        self.enabled.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether this is the process that opened it. Any other leaves it alone: not even its locks are to be taken, which a thread may have
    /// held that does not exist there.
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    fn check_origin(&self) -> Result<(), Code> {
        check_origin(&self.origin)
    }

    /// No send that the application is to be rid of at once waits until its message is wanted.
    pub(crate) fn keep_all(&self) {
        if let Ok(mut engine) = lock(&self.engine) {
            engine.keep_all();
        }
    }

    /// Does something of the application's, and lets out what comes of it.
    pub(crate) fn call<T>(&self, act: impl FnOnce(&mut Engine, Nanos) -> Result<T, Code>) -> Result<T, Code> {
        self.act(act, |_, _| true)
    }

    fn act<T>(
        &self,
        act: impl FnOnce(&mut Engine, Nanos) -> Result<T, Code>,
        lets_out: impl FnOnce(&Engine, Nanos) -> bool,
    ) -> Result<T, Code> {
        self.check_origin()?;
        let mut engine = lock(&self.engine)?;
        let now = monotonic();
        let done = act(&mut engine, now);
        if self.enabled.load(Ordering::Relaxed) {
            if lets_out(&engine, now) {
                engine.go_on(now);
            }
            self.attend(now);
        }
        done
    }

    /// As [`call`](Self::call), of what an endpoint must be enabled for.
    pub(crate) fn post<T>(&self, act: impl FnOnce(&mut Engine, Nanos) -> Result<T, Code>) -> Result<T, Code> {
        if self.enabled.load(Ordering::Relaxed) { self.call(act) } else { Err(Code::NOT_ENABLED) }
    }

    /// As [`post`](Self::post), of a wish for a message: programs say something behind it, which acknowledgements are not to hold up.
    pub(crate) fn want<T>(&self, act: impl FnOnce(&mut Engine, Nanos) -> Result<T, Code>) -> Result<T, Code> {
        if !self.enabled.load(Ordering::Relaxed) {
            return Err(Code::NOT_ENABLED);
        }
        self.act(act, |engine, now| !engine.may_wait(now))
    }

    /// What the progress thread does until it is to stop.
    pub(crate) fn drive(&self) -> Result<(), Code> {
        while !self.stopping.load(Ordering::Acquire) {
            self.take_turn()?;
        }
        Ok(())
    }

    fn take_turn(&self) -> Result<(), Code> {
        let until = Nanos(self.attended_until.load(Ordering::Relaxed));
        if monotonic() < until {
            // The application drives. Who would help it now would be in its way.
            self.stay_away(until);
            return Ok(());
        }
        let time = {
            let mut engine = match self.engine.try_lock() {
                Ok(engine) => engine,
                Err(TryLockError::WouldBlock) => {
                    // A call that takes long: it drives, too.
                    self.stay_away(monotonic().after(ATTENDED));
                    return Ok(());
                }
                Err(TryLockError::Poisoned(_)) => return Err(Code::OTHER),
            };
            let now = monotonic();
            engine.counts.rounds_of_thread += 1;
            engine.progress(now);
            let deadline = engine.deadline(now);
            if deadline.is_some_and(|deadline| deadline <= now) || !engine.prepare_sleep() {
                return Ok(());
            }
            self.asleep.store(true, Ordering::Relaxed);
            deadline.map(|deadline| deadline.since(now))
        };
        self.sleep(&self.watched, time);
        self.asleep.store(false, Ordering::Relaxed);
        lock(&self.engine)?.woken();
        Ok(())
    }

    /// Until then, a later alarm that is set meanwhile, or the wake.
    fn stay_away(&self, until: Nanos) {
        // One that has rung goes on until it is set anew.
        self.alarm.set(until);
        self.sleep(slice::from_ref(&self.alarm), None);
    }

    /// Ends [`drive`](Self::drive).
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.raise();
    }

    /// Sees what was sent out of the house, says farewell, and writes the statistics. The progress thread has stopped.
    pub(crate) fn close(&self) -> Result<(), Code> {
        let was_enabled = {
            let _engine = lock(&self.engine)?;
            self.enabled.swap(false, Ordering::Relaxed)
        };
        if was_enabled {
            self.flush()?;
            self.say_farewell()?;
        }
        lock(&self.engine)?.write_statistics(true);
        Ok(())
    }

    /// Goes on until everything has arrived, or those say nothing more to whom something is under way.
    fn flush(&self) -> Result<(), Code> {
        let mut began = monotonic();
        let mut turned = began;
        let longest = LINGER.max(self.settings.silence);
        lock(&self.engine)?.endpoint.on_ending();
        loop {
            let time = {
                let mut engine = lock(&self.engine)?;
                let now = monotonic();
                // While its job was suspended it could not hear anybody.
                let stood = now.since(turned);
                turned = now;
                if stood >= PAUSE {
                    began = began.after(stood);
                    engine.excuse(stood);
                }
                engine.progress(now);
                // Others may go on to talk to this one for as long as they like.
                let is_silent = (now.since(engine.heard()) > longest
                    || engine.endpoint.is_mute(now, longest))
                    && !engine.endpoint.owes_neighbours();
                if engine.endpoint.is_quiet() || now.since(began) > longest && is_silent {
                    return Ok(());
                }
                let deadline = engine.deadline(now).unwrap_or(Nanos::MAX).since(now).min(LOOK);
                if deadline == Nanos::ZERO || !engine.prepare_sleep() { Nanos::ZERO } else { deadline }
            };
            self.sleep(&self.watched, Some(time));
            lock(&self.engine)?.woken();
        }
    }

    /// Tells all peers that it ends, as soon as the socket takes that, and meanwhile tells them what came.
    fn say_farewell(&self) -> Result<(), Code> {
        let began = monotonic();
        lock(&self.engine)?.endpoint.on_close(began);
        loop {
            let now = monotonic();
            let next = {
                let mut engine = lock(&self.engine)?;
                engine.progress(now);
                engine.put_out_words(now)
            };
            let Some(next) = next.filter(|_| now.since(began) <= LINGER) else { return Ok(()) };
            self.sleep(&self.watched[..1], Some(next.since(now).min(LOOK)));
        }
    }

    /// The application calls: the progress thread is to look only when it has not for a while. It is told so by an alarm that each call
    /// puts off, as it would have to take the application's processor to see that it still calls. Under the engine's lock, as the thread
    /// falls asleep under it.
    fn attend(&self, now: Nanos) {
        if self.attended_until.load(Ordering::Relaxed) < now.after(LEAST_ATTENDED).0 {
            let until = now.after(ATTENDED);
            self.attended_until.store(until.0, Ordering::Relaxed);
            self.alarm.set(until);
        }
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wake.raise();
        }
    }

    /// Until the wake is raised, one of `watched` can be read, or the time is over.
    fn sleep(&self, watched: &[impl AsFd], time: Option<Nanos>) {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.wake.as_fd()];
        descriptors.extend(watched.iter().map(AsFd::as_fd));
        let mut ready = Vec::with_capacity(descriptors.len());
        // Where the kernel does not let it sleep, it goes on.
        let slept = wait_readable(&descriptors, time, &mut ready);
        if slept.is_ok() && ready.first() == Some(&true) {
            self.wake.lower();
        }
    }
}

impl Drive for Driver {
    fn progress(&self) -> Result<(), Code> {
        self.check_origin()?;
        let mut engine = lock(&self.engine)?;
        // Under the lock: once it is closed, what was lent to it is the application's again.
        if !self.enabled.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = monotonic();
        engine.attend(now);
        self.attend(now);
        Ok(())
    }

    fn leave(&self) {
        if !self.is_here() {
            return;
        }
        self.attended_until.store(0, Ordering::Relaxed);
        self.wake.raise();
    }
}

/// Why an endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("FARLINK_INTERFACE")]
    Interface(#[from] farlink_host::network::AddressError),
    #[error("open a socket at {address}")]
    Socket { address: std::net::IpAddr, source: std::io::Error },
    #[error("open an endpoint")]
    System(#[source] std::io::Error),
}

/// What people know this process by.
fn speaker(rank: Option<u64>) -> String {
    let host = process::host_name();
    match rank {
        Some(rank) => format!("rank {rank} on {host}"),
        None => format!("process {} on {host}", std::process::id()),
    }
}

/// This host's number: the same in every process of its network namespace, and in no other.
fn host() -> std::io::Result<HostId> {
    let name = farlink_host::network::name()?;
    let hash = blake3::hash(name.as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    Ok(HostId(u64::from_be_bytes([a, b, c, d, e, f, g, h])))
}

/// How long the progress thread stays out of the way of an application that called, at most: less than the other end waits for an
/// acknowledgement before it asks.
const ATTENDED: Nanos = Nanos(1_500_000);

/// And at least: an application that calls all the time puts the alarm off as often as that.
const LEAST_ATTENDED: Nanos = Nanos(750_000);

/// How often one that ends looks whether all has left.
const LOOK: Nanos = Nanos(1_000_000);

/// Nobody is so late with the next look who runs.
const PAUSE: Nanos = Nanos(1_000_000_000);

/// How long a closing endpoint waits at least for others that say nothing: longer than a cut of the link that is mended soon.
const LINGER: Nanos = Nanos(10_000_000_000);

/// Bytes that the kernel is asked to keep, in either direction: what comes at 10 Gb/s in 6 ms, in which somebody looks.
const SOCKET_BUFFER: u32 = 8 << 20;

#[cfg(test)]
pub(crate) mod tests;
