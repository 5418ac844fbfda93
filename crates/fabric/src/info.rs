//! The description of the provider, in memory that the application frees with free(3).

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use farlink_flow::fabric::settings::LONGEST_MESSAGE;

use crate::bindings as fi;
use crate::entry::Code;
use crate::memory::MOST_PARTS;
use crate::offer::{
    ADDRESS_FORMAT, AT_ONCE, DATA_BYTES, DOMAIN_CAPABILITIES, INJECTED, NAME, ORDER, Offer, PROTOCOL,
};
use crate::version::VERSION;

unsafe extern "C" {
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn strdup(text: *const c_char) -> *mut c_char;
}

/// Describes what is offered. What stays zero says: nothing of the kind, or: as much as you like.
pub(crate) fn make(offer: &Offer) -> Result<*mut fi::fi_info, Code> {
    let tx_attr = freed_by_c(fi::fi_tx_attr {
        caps: offer.capabilities & !RECEIVES,
        op_flags: offer.transmit_flags,
        msg_order: ORDER,
        inject_size: INJECTED,
        size: AT_ONCE,
        iov_limit: MOST_PARTS,
        ..Default::default()
    })?;
    let rx_attr = freed_by_c(fi::fi_rx_attr {
        caps: offer.capabilities & !fi::FI_SEND,
        op_flags: offer.receive_flags,
        msg_order: ORDER,
        size: AT_ONCE,
        iov_limit: MOST_PARTS,
        ..Default::default()
    })?;
    let ep_attr = freed_by_c(fi::fi_ep_attr {
        type_: fi::FI_EP_RDM,
        protocol: PROTOCOL,
        protocol_version: farlink_wire::fabric::VERSION.into(),
        max_msg_size: LONGEST_MESSAGE,
        // The top bit is set: every bit of a tag is the application's.
        mem_tag_format: 0xAAAA_AAAA_AAAA_AAAA,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        ..Default::default()
    })?;
    let domain_attr = freed_by_c(fi::fi_domain_attr {
        name: text(NAME)?,
        threading: offer.threading,
        control_progress: offer.control_progress,
        data_progress: offer.data_progress,
        resource_mgmt: fi::FI_RM_ENABLED,
        av_type: offer.addresses,
        mr_key_size: size_of::<u64>(),
        cq_data_size: DATA_BYTES,
        cq_cnt: OBJECTS,
        ep_cnt: OBJECTS,
        tx_ctx_cnt: OBJECTS,
        rx_ctx_cnt: OBJECTS,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        cntr_cnt: OBJECTS,
        mr_iov_limit: MOST_PARTS,
        mr_cnt: AT_ONCE,
        caps: DOMAIN_CAPABILITIES,
        ..Default::default()
    })?;
    // The core fills in the provider's name, and takes one that is there for that of another beneath.
    let fabric_attr = freed_by_c(fi::fi_fabric_attr {
        name: text(NAME)?,
        prov_version: VERSION,
        prov_name: ptr::null_mut(),
        ..Default::default()
    })?;
    freed_by_c(fi::fi_info {
        caps: offer.capabilities,
        addr_format: ADDRESS_FORMAT,
        tx_attr,
        rx_attr,
        ep_attr,
        domain_attr,
        fabric_attr,
        ..Default::default()
    })
}

/// Copies a value to where free(3) may free it, with room behind it for what later versions have there. Where memory ends, what was
/// made before is lost with the process.
fn freed_by_c<T>(value: T) -> Result<*mut T, Code> {
    // SAFETY: calloc(3) touches no memory of ours.
    let made = unsafe { calloc(1, size_of::<T>() + LATER) }.cast::<T>();
    if made.is_null() {
        return Err(Code::NO_MEMORY);
    }
    // SAFETY: it has room for one, and calloc(3) aligns for every type of C's.
    unsafe { made.write(value) };
    Ok(made)
}

fn text(text: &CStr) -> Result<*mut c_char, Code> {
    // SAFETY: it ends with a zero.
    let made = unsafe { strdup(text.as_ptr()) };
    if made.is_null() { Err(Code::NO_MEMORY) } else { Ok(made) }
}

/// Capabilities of endpoints that receive alone.
const RECEIVES: u64 = fi::FI_RECV | fi::FI_DIRECTED_RECV | fi::FI_MULTI_RECV | fi::FI_SOURCE;

/// Objects of a kind that are surely had: an endpoint has a socket and a thread.
const OBJECTS: usize = 128;

/// Bytes behind a structure: the structures of 2.5 are at most 32 longer than those of 1.17.
const LATER: usize = 256;
