//! Event queues. Nothing that happens here is an event: connections and asynchronous address vectors would be, and are not had.

use std::ffi::{c_int, c_void};
use std::thread;
use std::time::Duration;

use crate::absent::Absent;
use crate::bindings::{FI_CLASS_EQ, fi_eq_attr, fi_eq_err_entry, fi_ops, fi_ops_eq, fid, fid_eq};
use crate::drivers::check_wait;
use crate::entry::{Code, counted, done};
use crate::object::{self, Context, Object};

/// One that the application opened.
#[repr(C)]
pub(crate) struct EventQueue {
    fid: fid_eq,
}

// SAFETY: as the trait wants it.
unsafe impl Object for EventQueue {
    type Fid = fid_eq;
    const CLASS: u32 = FI_CLASS_EQ;
}

impl EventQueue {
    pub(crate) fn open(attributes: &fi_eq_attr, context: Context) -> Result<Self, Code> {
        check_wait(attributes.wait_obj)?;
        let fid = object::head(Self::CLASS, context.0, &COMMON);
        Ok(Self { fid: fid_eq { fid, ops: object::table(&TABLE) } })
    }
}

static COMMON: fi_ops = object::common(close);

static TABLE: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(read_error),
    write: Absent::ABSENT,
    sread: Some(wait),
    strerror: Some(crate::completion_queue::describe_event),
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        unsafe { EventQueue::take_back(of) }.map(drop)
    })
}

unsafe extern "C" fn read(_: *mut fid_eq, _: *mut u32, _: *mut c_void, _: usize, _: u64) -> isize {
    counted(|| Err(Code::AGAIN))
}

unsafe extern "C" fn read_error(_: *mut fid_eq, _: *mut fi_eq_err_entry, _: u64) -> isize {
    counted(|| Err(Code::AGAIN))
}

unsafe extern "C" fn wait(
    _: *mut fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    timeout: c_int,
    _: u64,
) -> isize {
    counted(|| {
        // Who would wait for ever waits a little, and again.
        let millis = u64::try_from(timeout).unwrap_or(100);
        thread::sleep(Duration::from_millis(millis));
        Err(Code::AGAIN)
    })
}
