//! The fabric: the one that there is.

use std::ffi::{c_int, c_void};

use crate::absent::Absent;
use crate::bindings::{
    FI_CLASS_FABRIC, fi_eq_attr, fi_info, fi_ops, fi_ops_fabric, fid, fid_domain, fid_eq, fid_fabric,
};
use crate::domain::Domain;
use crate::entry::{Code, done};
use crate::event_queue::EventQueue;
use crate::object::{self, Context, Object};

/// A fabric that the application opened.
#[repr(C)]
pub(crate) struct Fabric {
    fid: fid_fabric,
}

// SAFETY: as the trait wants it.
unsafe impl Object for Fabric {
    type Fid = fid_fabric;
    const CLASS: u32 = FI_CLASS_FABRIC;
}

impl Fabric {
    pub(crate) fn new(context: Context, api_version: u32) -> Self {
        let fid = object::head(Self::CLASS, context.0, &COMMON);
        Self { fid: fid_fabric { fid, ops: object::table(&TABLE), api_version } }
    }
}

static COMMON: fi_ops = object::common(close);

static TABLE: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(domain),
    passive_ep: Absent::ABSENT,
    eq_open: Some(event_queue),
    wait_open: Absent::ABSENT,
    trywait: Absent::ABSENT,
    domain2: Absent::ABSENT,
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        unsafe { Fabric::take_back(of) }.map(drop)
    })
}

unsafe extern "C" fn domain(
    fabric: *mut fid_fabric,
    _info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let version = unsafe { Fabric::of(fabric) }?.fid.api_version;
        Domain::new(Context(context), version).hand_over(domain)
    })
}

unsafe extern "C" fn event_queue(
    _fabric: *mut fid_fabric,
    attributes: *mut fi_eq_attr,
    queue: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the application's, for the call.
        let attributes = unsafe { attributes.as_ref() }.ok_or(Code::INVALID)?;
        EventQueue::open(attributes, Context(context))?.hand_over(queue)
    })
}
