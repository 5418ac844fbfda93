//! Whom a queue or a counter asks to go on, and how the application waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use std::ffi::c_int;
use std::os::fd::AsFd;

use farlink_host::clock::monotonic;
use farlink_host::precise::wait_readable;
use farlink_host::readiness::Wake;
use farlink_wire::quantity::Nanos;

use crate::driver::Driver;
use crate::entry::{Code, lock};

/// The drivers of all endpoints that tell one queue or counter what they did.
#[derive(Debug)]
pub(crate) struct Drivers {
    attached: Mutex<Vec<Weak<Driver>>>,
    /// Threads of the application that sleep until something comes.
    asleep: AtomicUsize,
    bell: Wake,
}

impl Drivers {
    pub(crate) fn new() -> Result<Self, Code> {
        let bell = Wake::new().map_err(|_| Code::NO_MEMORY)?;
        Ok(Self { attached: Mutex::default(), asleep: AtomicUsize::new(0), bell })
    }

    /// One more.
    pub(crate) fn attach(&self, driver: &Arc<Driver>) -> Result<(), Code> {
        let mut attached = lock(&self.attached)?;
        attached.retain(|its| its.strong_count() > 0 && !its.ptr_eq(&Arc::downgrade(driver)));
        attached.push(Arc::downgrade(driver));
        Ok(())
    }

    /// Drives all of them.
    pub(crate) fn progress(&self) -> Result<(), Code> {
        self.each(Driver::progress)
    }

    /// Something came.
    pub(crate) fn ring(&self) {
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.bell.raise();
        }
    }

    /// Looks until there is something to see, or so many milliseconds are over: none is, of a negative number.
    pub(crate) fn wait<T>(
        &self,
        timeout: c_int,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Code> {
        let time = u64::try_from(timeout).ok().map(|millis| Nanos(millis * 1_000_000));
        let began = monotonic();
        loop {
            let mut seen = look();
            let passed = monotonic().since(began);
            if seen.is_some() || time.is_some_and(|time| passed >= time) {
                return Ok(seen);
            }
            self.asleep.fetch_add(1, Ordering::SeqCst);
            // What came before that rang for nobody.
            seen = look();
            if seen.is_none() {
                // Who sleeps does not drive: the progress threads do.
                self.each(|driver| {
                    driver.leave();
                    Ok(())
                })?;
                let left = time.map(|time| time.since(passed));
                // Where the kernel does not let it sleep, it looks again at once.
                let _ = wait_readable(&[self.bell.as_fd()], left, &mut Vec::new());
            }
            if self.asleep.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.bell.lower();
            }
            if seen.is_some() {
                return Ok(seen);
            }
        }
    }

    fn each(&self, mut call: impl FnMut(&Driver) -> Result<(), Code>) -> Result<(), Code> {
        lock(&self.attached)?.iter().filter_map(Weak::upgrade).try_for_each(|driver| call(&driver))
    }
}
