//! Messages without tags: MPICH's active messages, and what small programs of libfabric's send.

use std::ffi::c_void;

use farlink_flow::fabric::operation::{Kind, Wanted};

use crate::bindings as fi;
use crate::bindings::{fi_addr_t, fi_msg, fi_ops_msg, fid_ep, iovec};
use crate::endpoint::Endpoint;
use crate::entry::{Code, done};
use crate::memory::Parts;
use crate::object::{Context, Object as _};
use crate::post::{Notice, Outgoing};

/// What is asked of messages with tags alone (fi_tagged(3)): taken for a receive, it would take a message that is to wait.
const QUESTIONS: u64 = fi::FI_PEEK | fi::FI_CLAIM | fi::FI_DISCARD;

/// What an endpoint has for it.
pub(crate) static TABLE: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(receive),
    recvv: Some(receive_listed),
    recvmsg: Some(receive_described),
    send: Some(send),
    sendv: Some(send_listed),
    sendmsg: Some(send_described),
    inject: Some(inject),
    senddata: Some(send_data),
    injectdata: Some(inject_data),
};

unsafe extern "C" fn receive(
    endpoint: *mut fid_ep,
    at: *mut c_void,
    len: usize,
    _descriptor: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application lends it until the completion.
        let parts = unsafe { Parts::one(at, len) }?;
        let flags = endpoint.receive_flags();
        endpoint.receive(from, Wanted::Untagged, parts, Context(context), flags)
    })
}

unsafe extern "C" fn receive_listed(
    endpoint: *mut fid_ep,
    list: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application lends it until the completion.
        let parts = unsafe { Parts::listed(list, count) }?;
        let flags = endpoint.receive_flags();
        endpoint.receive(from, Wanted::Untagged, parts, Context(context), flags)
    })
}

unsafe extern "C" fn receive_described(endpoint: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application's, for the call.
        let message = unsafe { message.as_ref() }.ok_or(Code::INVALID)?;
        if flags & QUESTIONS != 0 {
            return Err(Code::BAD_FLAGS);
        }
        // SAFETY: the application lends it until the completion.
        let parts = unsafe { Parts::listed(message.msg_iov, message.iov_count) }?;
        endpoint.receive(message.addr, Wanted::Untagged, parts, Context(message.context), flags)
    })
}

unsafe extern "C" fn send(
    endpoint: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application lends it until the completion.
        let parts = unsafe { Parts::one(at, len) }?;
        endpoint.send(to, Kind::Untagged, None, parts, Context(context), endpoint.transmit_flags())
    })
}

unsafe extern "C" fn send_listed(
    endpoint: *mut fid_ep,
    list: *const iovec,
    _descriptors: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application lends it until the completion.
        let parts = unsafe { Parts::listed(list, count) }?;
        endpoint.send(to, Kind::Untagged, None, parts, Context(context), endpoint.transmit_flags())
    })
}

unsafe extern "C" fn send_described(endpoint: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application's, for the call.
        let message = unsafe { message.as_ref() }.ok_or(Code::INVALID)?;
        // SAFETY: the application lends it until the completion.
        let parts = unsafe { Parts::listed(message.msg_iov, message.iov_count) }?;
        let data = (flags & fi::FI_REMOTE_CQ_DATA != 0).then_some(message.data);
        endpoint.send(message.addr, Kind::Untagged, data, parts, Context(message.context), flags)
    })
}

unsafe extern "C" fn send_data(
    endpoint: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application lends it until the completion.
        let parts = unsafe { Parts::one(at, len) }?;
        let flags = endpoint.transmit_flags();
        endpoint.send(to, Kind::Untagged, Some(data), parts, Context(context), flags)
    })
}

unsafe extern "C" fn inject(endpoint: *mut fid_ep, at: *const c_void, len: usize, to: fi_addr_t) -> isize {
    // SAFETY: as the application says.
    unsafe { copied(endpoint, at, len, None, to) }
}

unsafe extern "C" fn inject_data(
    endpoint: *mut fid_ep,
    at: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
) -> isize {
    // SAFETY: as the application says.
    unsafe { copied(endpoint, at, len, Some(data), to) }
}

/// Sends what is copied before this returns.
///
/// # Safety
/// As [`inject`].
unsafe fn copied(
    endpoint: *mut fid_ep,
    at: *const c_void,
    len: usize,
    data: Option<u64>,
    to: fi_addr_t,
) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of(endpoint) }?;
        // SAFETY: the application lends it for the call, and it is not looked at later.
        let parts = unsafe { Parts::one(at, len) }?;
        let (kind, context) = (Kind::Untagged, Context(std::ptr::null_mut()));
        endpoint.post(Outgoing { to, kind, data, parts, context, notice: Notice::Never, copied: true })
    })
}
