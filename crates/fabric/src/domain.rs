//! The domain: what opens everything else.

use std::ffi::{c_int, c_void};

use crate::absent::Absent;
use crate::address_vector::AddressVector;
use crate::bindings as fi;
use crate::bindings::{fi_ops, fi_ops_domain, fid, fid_domain};
use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;
use crate::endpoint::{Calls, Endpoint};
use crate::entry::{Code, done};
use crate::object::{self, Context, Object};
use crate::registration;
use crate::{message, tagged};

/// One that the application opened.
#[repr(C)]
pub(crate) struct Domain {
    fid: fid_domain,
    /// The version of the interface that the application was built for.
    version: u32,
}

// SAFETY: as the trait wants it.
unsafe impl Object for Domain {
    type Fid = fid_domain;
    const CLASS: u32 = fi::FI_CLASS_DOMAIN;
}

impl Domain {
    pub(crate) fn new(context: Context, version: u32) -> Self {
        let fid = object::head(Self::CLASS, context.0, &COMMON);
        let fid = fid_domain { fid, ops: object::table(&TABLE), mr: object::table(&registration::TABLE) };
        Self { fid, version }
    }
}

static COMMON: fi_ops = object::common(close);

static TABLE: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(address_vector),
    cq_open: Some(completion_queue),
    endpoint: Some(endpoint),
    scalable_ep: Absent::ABSENT,
    cntr_open: Some(counter),
    poll_open: Absent::ABSENT,
    stx_ctx: Absent::ABSENT,
    srx_ctx: Absent::ABSENT,
    query_atomic: Absent::ABSENT,
    query_collective: Absent::ABSENT,
    endpoint2: Absent::ABSENT,
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        unsafe { Domain::take_back(of) }.map(drop)
    })
}

unsafe extern "C" fn address_vector(
    _domain: *mut fid_domain,
    attributes: *mut fi::fi_av_attr,
    vector: *mut *mut fi::fid_av,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the application's, for the call.
        let attributes = unsafe { attributes.as_ref() }.ok_or(Code::INVALID)?;
        AddressVector::open(attributes, Context(context))?.hand_over(vector)
    })
}

unsafe extern "C" fn completion_queue(
    domain: *mut fid_domain,
    attributes: *mut fi::fi_cq_attr,
    queue: *mut *mut fi::fid_cq,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let version = unsafe { Domain::of(domain) }?.version;
        // SAFETY: the application's, for the call.
        let attributes = unsafe { attributes.as_ref() }.copied().unwrap_or_default();
        CompletionQueue::open(&attributes, version, Context(context))?.hand_over(queue)
    })
}

unsafe extern "C" fn counter(
    _domain: *mut fid_domain,
    attributes: *mut fi::fi_cntr_attr,
    counter: *mut *mut fi::fid_cntr,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the application's, for the call.
        let attributes = unsafe { attributes.as_ref() }.copied().unwrap_or_default();
        Counter::open(&attributes, Context(context))?.hand_over(counter)
    })
}

unsafe extern "C" fn endpoint(
    _domain: *mut fid_domain,
    info: *mut fi::fi_info,
    endpoint: *mut *mut fi::fid_ep,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the application hands what getinfo gave it.
        let info = unsafe { info.as_ref() }.ok_or(Code::INVALID)?;
        // SAFETY: as above.
        let transmit = unsafe { info.tx_attr.as_ref() }.map_or(0, |attributes| attributes.op_flags);
        // SAFETY: as above.
        let receive = unsafe { info.rx_attr.as_ref() }.map_or(0, |attributes| attributes.op_flags);
        Endpoint::open(&CALLS, info.caps, transmit, receive, Context(context))?.hand_over(endpoint)
    })
}

const CALLS: Calls = Calls { message: &message::TABLE, tagged: &tagged::TABLE };
