//! Whom a queue or a counter asks to go on, and how the application waits for it.

use std::ffi::c_int;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, Weak};
use std::time::Duration;

use farlink_host::clock::monotonic;
use farlink_host::origin::Origin;
use farlink_wire::quantity::Nanos;

use crate::bindings as fi;
use crate::entry::{Code, check_origin, lock};

/// What an application has go on that looks at a queue or a counter.
pub(crate) trait Drive: Debug + Send + Sync {
    /// Goes on, for the application.
    fn progress(&self) -> Result<(), Code>;

    /// The application will not call for a while: the progress thread drives from now on.
    fn leave(&self);
}

/// The drivers of all endpoints that tell one queue or counter what they did.
#[derive(Debug)]
pub(crate) struct Drivers {
    origin: Origin,
    attached: Mutex<Vec<Weak<dyn Drive>>>,
    /// Threads of the application that sleep until something comes.
    asleep: AtomicUsize,
    /// How often it rang for them.
    rings: Mutex<u64>,
    bell: Condvar,
}

/// A thread that sleeps, or is about to, until this is dropped.
struct Asleep<'a>(&'a AtomicUsize);

impl<'a> Asleep<'a> {
    fn one_more(asleep: &'a AtomicUsize) -> Self {
        asleep.fetch_add(1, Ordering::SeqCst);
        Self(asleep)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drivers {
    /// None, for the application of this process.
    pub(crate) fn new() -> Result<Self, Code> {
        Ok(Self {
            origin: Origin::here().map_err(|_| Code::NO_MEMORY)?,
            attached: Mutex::default(),
            asleep: AtomicUsize::default(),
            rings: Mutex::default(),
            bell: Condvar::default(),
        })
    }

    /// Refuses a forked child of this process.
    pub(crate) fn check_here(&self) -> Result<(), Code> {
        check_origin(&self.origin)
    }

    /// One more.
    pub(crate) fn attach(&self, driver: Weak<dyn Drive>) -> Result<(), Code> {
        self.check_here()?;
        let mut attached = lock(&self.attached)?;
        attached.retain(|its| its.strong_count() > 0 && !its.ptr_eq(&driver));
        attached.push(driver);
        Ok(())
    }

    /// Drives all of them.
    pub(crate) fn progress(&self) -> Result<(), Code> {
        self.check_here()?;
        self.each(|driver| driver.progress())
    }

    /// Something came.
    pub(crate) fn ring(&self) {
        if self.asleep.load(Ordering::SeqCst) > 0 {
            if let Ok(mut rings) = lock(&self.rings) {
                *rings = rings.wrapping_add(1);
            }
            self.bell.notify_all();
        }
    }

    /// Looks until there is something to see, or so many milliseconds are over: none is, of a negative number.
    pub(crate) fn wait<T>(
        &self,
        timeout: c_int,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Code> {
        self.check_here()?;
        let time = u64::try_from(timeout).ok().map(|millis| Nanos(millis * 1_000_000));
        let began = monotonic();
        loop {
            let mut seen = look();
            let passed = monotonic().since(began);
            if seen.is_some() || time.is_some_and(|time| passed >= time) {
                return Ok(seen);
            }
            let _asleep = Asleep::one_more(&self.asleep);
            let rings = *lock(&self.rings)?;
            // What came before that rang for nobody, or was not heard.
            seen = look();
            if seen.is_none() {
                // Who sleeps does not drive: the progress threads do.
                self.each(|driver| {
                    driver.leave();
                    Ok(())
                })?;
                self.sleep(rings, time.map(|time| time.since(passed)))?;
            }
            if seen.is_some() {
                return Ok(seen);
            }
        }
    }

    /// Until it has rung more than `heard` times, the time is over, or it is to be looked whether those who drive still do.
    fn sleep(&self, heard: u64, time: Option<Nanos>) -> Result<(), Code> {
        let mut rings = lock(&self.rings)?;
        let end = monotonic().after(time.unwrap_or(LOOK_EVERY).min(LOOK_EVERY));
        while *rings == heard {
            let Nanos(left) = end.since(monotonic());
            if left == 0 {
                break;
            }
            rings = self.bell.wait_timeout(rings, Duration::from_nanos(left)).map_err(|_| Code::OTHER)?.0;
        }
        Ok(())
    }

    fn each(&self, mut call: impl FnMut(&dyn Drive) -> Result<(), Code>) -> Result<(), Code> {
        // Of one that has failed the others go on all the same.
        let attached = lock(&self.attached)?;
        let mut outcome = Ok(());
        for driver in attached.iter().filter_map(Weak::upgrade) {
            outcome = outcome.and(call(&*driver));
        }
        outcome
    }
}

/// An error where the application would wait by what is not had: a descriptor, or a set of objects. That it looks again and again costs nothing.
pub(crate) fn check_wait(object: fi::fi_wait_obj) -> Result<(), Code> {
    match object {
        fi::FI_WAIT_NONE | fi::FI_WAIT_UNSPEC | fi::FI_WAIT_YIELD => Ok(()),
        _ => Err(Code::NOT_HERE),
    }
}

/// A progress thread that panicked rings for nobody.
const LOOK_EVERY: Nanos = Nanos(1_000_000_000);

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;

    #[derive(Debug)]
    struct Counted(Result<(), Code>, AtomicUsize);

    impl Drive for Counted {
        fn progress(&self) -> Result<(), Code> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0
        }

        fn leave(&self) {}
    }

    #[test]
    fn behind_one_that_failed_the_others_go_on() {
        let drivers = Drivers::new().unwrap();
        let all = [Err(Code::OTHER), Ok(())].map(|outcome| Arc::new(Counted(outcome, AtomicUsize::new(0))));
        for each in &all {
            drivers.attach(Arc::downgrade(each) as _).unwrap();
        }
        assert_eq!(drivers.progress(), Err(Code::OTHER));
        assert!(all.iter().all(|each| each.1.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn nobody_sleeps_whose_wait_has_failed() {
        let drivers = Drivers::new().unwrap();
        // Somebody panics with the lock.
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _rings = drivers.rings.lock().unwrap();
            panic!("a fault");
        }));
        assert!(panicked.is_err());
        assert_eq!(drivers.wait(-1, || None::<()>), Err(Code::OTHER));
        assert_eq!(drivers.asleep.load(Ordering::SeqCst), 0);
    }
}
