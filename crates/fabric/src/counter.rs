//! Counters: how many operations ended, and how many failed.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bindings as fi;
use crate::bindings::{fi_ops, fi_ops_cntr, fid, fid_cntr};
use crate::drivers::{Drivers, check_wait};
use crate::entry::{Code, done};
use crate::object::{self, Context, Object};

/// What is counted.
#[derive(Debug)]
pub(crate) struct Count {
    ended: AtomicU64,
    failed: AtomicU64,
    pub(crate) drivers: Drivers,
}

impl Count {
    fn new() -> Result<Self, Code> {
        Ok(Self { ended: AtomicU64::default(), failed: AtomicU64::default(), drivers: Drivers::new()? })
    }

    /// One more operation is over.
    pub(crate) fn add(&self, failed: bool) {
        let which = if failed { &self.failed } else { &self.ended };
        which.fetch_add(1, Ordering::Release);
        self.drivers.ring();
    }
}

/// One that the application opened.
#[repr(C)]
pub(crate) struct Counter {
    fid: fid_cntr,
    count: Arc<Count>,
}

// SAFETY: as the trait wants it.
unsafe impl Object for Counter {
    type Fid = fid_cntr;
    const CLASS: u32 = fi::FI_CLASS_CNTR;
}

impl Counter {
    pub(crate) fn open(attributes: &fi::fi_cntr_attr, context: Context) -> Result<Self, Code> {
        if attributes.events != fi::FI_CNTR_EVENTS_COMP {
            return Err(Code::INVALID);
        }
        check_wait(attributes.wait_obj)?;
        let fid = object::head(Self::CLASS, context.0, &COMMON);
        Ok(Self { fid: fid_cntr { fid, ops: object::table(&TABLE) }, count: Arc::new(Count::new()?) })
    }

    pub(crate) fn count(&self) -> Arc<Count> {
        Arc::clone(&self.count)
    }
}

static COMMON: fi_ops = object::common(close);

static TABLE: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(read_failed),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(add_failed),
    seterr: Some(set_failed),
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        unsafe { Counter::take_back(of) }.map(drop)
    })
}

unsafe extern "C" fn read(counter: *mut fid_cntr) -> u64 {
    let mut value = 0;
    let _: c_int = done(|| {
        // SAFETY: what the application opened and did not close.
        let count = unsafe { Counter::of(counter) }?.count();
        // A failed driver fails the operations; a counter cannot say so.
        let driven = count.drivers.progress();
        value = count.ended.load(Ordering::Acquire);
        driven
    });
    value
}

unsafe extern "C" fn read_failed(counter: *mut fid_cntr) -> u64 {
    let mut value = 0;
    let _: c_int = done(|| {
        // SAFETY: what the application opened and did not close.
        value = unsafe { Counter::of(counter) }?.count.failed.load(Ordering::Acquire);
        Ok(())
    });
    value
}

unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: as the application says.
    unsafe { change(counter, |count| count.ended.fetch_add(value, Ordering::AcqRel)) }
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: as the application says.
    unsafe { change(counter, |count| count.ended.swap(value, Ordering::AcqRel)) }
}

unsafe extern "C" fn add_failed(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: as the application says.
    unsafe { change(counter, |count| count.failed.fetch_add(value, Ordering::AcqRel)) }
}

unsafe extern "C" fn set_failed(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: as the application says.
    unsafe { change(counter, |count| count.failed.swap(value, Ordering::AcqRel)) }
}

/// Changes a counter, and wakes who waits for it.
///
/// # Safety
/// `counter` is what the application opened and did not close.
unsafe fn change(counter: *mut fid_cntr, change: impl FnOnce(&Count) -> u64) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let counter = unsafe { Counter::of(counter) }?;
        counter.count.drivers.check_here()?;
        change(&counter.count);
        counter.count.drivers.ring();
        Ok(())
    })
}

unsafe extern "C" fn wait(counter: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let count = unsafe { Counter::of(counter) }?.count();
        let failed = count.failed.load(Ordering::Acquire);
        let look = || match count.drivers.progress() {
            Err(code) => Some(Err(code)),
            Ok(()) if count.ended.load(Ordering::Acquire) >= threshold => Some(Ok(())),
            Ok(()) if count.failed.load(Ordering::Acquire) != failed => Some(Err(Code::AVAILABLE)),
            Ok(()) => None,
        };
        count.drivers.wait(timeout, look)?.unwrap_or(Err(Code::TIMED_OUT))
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_counter_counts_and_is_waited_for() {
        let counter = Counter::open(&fi::fi_cntr_attr::default(), Context(ptr::null_mut())).unwrap();
        let fid = (&raw const counter).cast_mut().cast();
        counter.count.add(false);
        counter.count.add(true);
        // SAFETY: it is there.
        assert_eq!(unsafe { read(fid) }, 1);
        // SAFETY: as above.
        assert_eq!(unsafe { read_failed(fid) }, 1);
        // SAFETY: as above.
        assert_eq!(unsafe { wait(fid, 1, -1) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { wait(fid, 2, 1) }, -fi::FI_ETIMEDOUT);
        // SAFETY: as above.
        assert_eq!(unsafe { add(fid, 4) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { wait(fid, 5, -1) }, 0);
    }
}
