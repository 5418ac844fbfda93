//! Registered memory. Messages need none; here is where remote access to memory would begin.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bindings::{FI_CLASS_MR, fi_mr_attr, fi_ops, fi_ops_mr, fid, fid_mr, iovec};
use crate::entry::{Code, done};
use crate::object::{self, Context, Object};

/// What the application registered.
#[repr(C)]
pub(crate) struct Registration {
    fid: fid_mr,
}

// SAFETY: as the trait wants it.
unsafe impl Object for Registration {
    type Fid = fid_mr;
    const CLASS: u32 = FI_CLASS_MR;
}

impl Registration {
    fn new(context: Context) -> Self {
        let fid = object::head(Self::CLASS, context.0, &COMMON);
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        Self { fid: fid_mr { fid, mem_desc: ptr::null_mut(), key } }
    }
}

/// Every registration has one of its own.
static KEYS: AtomicU64 = AtomicU64::new(1);

static COMMON: fi_ops = fi_ops { bind: Some(bind), control: Some(control), ..object::common(close) };

/// What a domain has for it.
pub(crate) static TABLE: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: Some(register),
    regv: Some(register_listed),
    regattr: Some(register_described),
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        unsafe { Registration::take_back(of) }.map(drop)
    })
}

/// To an endpoint or a counter: neither is told of anything.
unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    done(|| Ok(()))
}

/// Enabling it is all that can be asked for.
unsafe extern "C" fn control(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    done(|| if command == crate::bindings::FI_ENABLE as c_int { Ok(()) } else { Err(Code::NOT_HERE) })
}

unsafe extern "C" fn register(
    _domain: *mut fid,
    _at: *const c_void,
    _len: usize,
    _access: u64,
    _offset: u64,
    _key: u64,
    _flags: u64,
    region: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    done(|| Registration::new(Context(context)).hand_over(region))
}

unsafe extern "C" fn register_listed(
    _domain: *mut fid,
    _list: *const iovec,
    _count: usize,
    _access: u64,
    _offset: u64,
    _key: u64,
    _flags: u64,
    region: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    done(|| Registration::new(Context(context)).hand_over(region))
}

unsafe extern "C" fn register_described(
    _domain: *mut fid,
    attributes: *const fi_mr_attr,
    _flags: u64,
    region: *mut *mut fid_mr,
) -> c_int {
    done(|| {
        // SAFETY: the application's, for the call.
        let attributes = unsafe { attributes.as_ref() }.ok_or(Code::INVALID)?;
        Registration::new(Context(attributes.context)).hand_over(region)
    })
}
