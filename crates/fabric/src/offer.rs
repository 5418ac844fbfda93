//! What is offered for what an application asks of a provider.

use std::ffi::{CStr, c_char};

use farlink_flow::fabric::settings::LONGEST_MESSAGE;

use crate::bindings as fi;

/// What an application asks for; where it leaves something open, zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'a> {
    info: Option<&'a fi::fi_info>,
    transmit: Option<&'a fi::fi_tx_attr>,
    receive: Option<&'a fi::fi_rx_attr>,
    endpoint: Option<&'a fi::fi_ep_attr>,
    domain: Option<&'a fi::fi_domain_attr>,
    /// Whether it names another fabric, or another domain, than there is.
    is_elsewhere: bool,
}

impl<'a> Asked<'a> {
    /// As an application's hints say.
    ///
    /// # Safety
    /// `hints` is null, or it and all that it points to stay as they are for `'a`.
    pub(crate) unsafe fn of(hints: *const fi::fi_info) -> Self {
        // SAFETY: as the caller says.
        let Some(info) = (unsafe { hints.as_ref() }) else { return Self::default() };
        // SAFETY: as the caller says.
        let domain = unsafe { info.domain_attr.as_ref() };
        // SAFETY: as the caller says.
        let fabric = unsafe { info.fabric_attr.as_ref() };
        let names = [domain.map(|domain| domain.name), fabric.map(|fabric| fabric.name)];
        // SAFETY: as the caller says: names end with a zero.
        let is_elsewhere = names.into_iter().flatten().any(|name| unsafe { is_another(name) });
        Self {
            info: Some(info),
            // SAFETY: as the caller says.
            transmit: unsafe { info.tx_attr.as_ref() },
            // SAFETY: as the caller says.
            receive: unsafe { info.rx_attr.as_ref() },
            // SAFETY: as the caller says.
            endpoint: unsafe { info.ep_attr.as_ref() },
            domain,
            is_elsewhere,
        }
    }

    /// Whether all of it is had here.
    fn is_had(&self) -> bool {
        !self.is_elsewhere
            && self.info.is_none_or(|info| {
                info.caps & !CAPABILITIES == 0
                    && matches!(info.addr_format, fi::FI_FORMAT_UNSPEC | ADDRESS_FORMAT)
            })
            && self.endpoint.is_none_or(has_endpoint)
            && self.domain.is_none_or(has_domain)
            && self.transmit.is_none_or(has_transmit)
            && self.receive.is_none_or(has_receive)
    }
}

/// Whether `name` is given and is not that of our fabric, and of our domain in it.
///
/// # Safety
/// It is null, or ends with a zero.
unsafe fn is_another(name: *const c_char) -> bool {
    // SAFETY: as the caller says.
    !name.is_null() && unsafe { CStr::from_ptr(name) } != NAME
}

fn has_endpoint(asked: &fi::fi_ep_attr) -> bool {
    matches!(asked.type_, fi::FI_EP_UNSPEC | fi::FI_EP_RDM)
        && matches!(asked.protocol, fi::FI_PROTO_UNSPEC | PROTOCOL)
        && asked.max_msg_size <= LONGEST_MESSAGE
        && asked.tx_ctx_cnt <= 1
        && asked.rx_ctx_cnt <= 1
        && asked.msg_prefix_size == 0
        && asked.auth_key_size == 0
}

/// `FI_PROGRESS_CONTROL_UNIFIED` of libfabric 2: the application takes its locks itself, which asks for less than is given.
const UNIFIED_CONTROL: u32 = 3;

fn has_domain(asked: &fi::fi_domain_attr) -> bool {
    asked.threading <= fi::FI_THREAD_ENDPOINT
        && asked.control_progress <= UNIFIED_CONTROL
        && asked.data_progress <= fi::FI_PROGRESS_MANUAL
        && asked.av_type <= fi::FI_AV_TABLE
        && asked.cq_data_size <= DATA_BYTES
        && asked.max_ep_stx_ctx == 0
        && asked.max_ep_srx_ctx == 0
        && asked.caps & !DOMAIN_CAPABILITIES == 0
}

fn has_transmit(asked: &fi::fi_tx_attr) -> bool {
    asked.caps & !CAPABILITIES == 0
        && asked.op_flags & ENDS_NOT_HAD == 0
        && asked.msg_order & !ORDER == 0
        && asked.comp_order == 0
        && asked.inject_size <= INJECTED
        && asked.size <= AT_ONCE
        && asked.iov_limit <= crate::memory::MOST_PARTS
        && asked.rma_iov_limit == 0
}

fn has_receive(asked: &fi::fi_rx_attr) -> bool {
    asked.caps & !CAPABILITIES == 0
        && asked.msg_order & !ORDER == 0
        && asked.comp_order == 0
        && asked.size <= AT_ONCE
        && asked.iov_limit <= crate::memory::MOST_PARTS
}

/// What an application gets: what is always the same is [`info`](crate::info)'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) capabilities: u64,
    pub(crate) transmit_flags: u64,
    pub(crate) receive_flags: u64,
    pub(crate) threading: u32,
    pub(crate) control_progress: u32,
    pub(crate) data_progress: u32,
    pub(crate) addresses: u32,
}

impl Offer {
    /// What is offered to who asks so; `None` where not all of it is had.
    pub(crate) fn to(asked: &Asked<'_>, named: bool, flags: u64) -> Option<Self> {
        let attributes_alone = flags & fi::FI_PROV_ATTR_ONLY != 0;
        if !attributes_alone && (named || !asked.is_had()) {
            return None;
        }
        // Directed receives change what a source address means, so only who asks for them has them.
        let wanted = asked.info.map_or(0, |info| info.caps);
        let undirected = wanted != 0 && wanted & fi::FI_DIRECTED_RECV == 0;
        let capabilities = if undirected { CAPABILITIES & !fi::FI_DIRECTED_RECV } else { CAPABILITIES };
        let domain = asked.domain.copied().unwrap_or_default();
        let or = |asked: u32, ours: u32| if asked == 0 { ours } else { asked };
        Some(Self {
            capabilities,
            transmit_flags: asked.transmit.map_or(0, |transmit| transmit.op_flags),
            receive_flags: asked.receive.map_or(0, |receive| receive.op_flags),
            // One lock holds everything together, so every way of threading is as good; MPICH insists on its own.
            threading: or(domain.threading, fi::FI_THREAD_SAFE),
            control_progress: or(domain.control_progress, fi::FI_PROGRESS_AUTO),
            data_progress: or(domain.data_progress, fi::FI_PROGRESS_AUTO),
            addresses: or(domain.av_type, fi::FI_AV_TABLE),
        })
    }
}

/// Of the one fabric, and of the one domain in it.
pub(crate) const NAME: &CStr = c"farlink";

/// What endpoints can do. One-sided operations (`FI_RMA`, `FI_ATOMIC`) are not among it.
pub(crate) const CAPABILITIES: u64 = fi::FI_MSG
    | fi::FI_TAGGED
    | fi::FI_SEND
    | fi::FI_RECV
    | fi::FI_DIRECTED_RECV
    | fi::FI_MULTI_RECV
    | fi::FI_SOURCE
    | DOMAIN_CAPABILITIES;

/// What domains can do.
pub(crate) const DOMAIN_CAPABILITIES: u64 = fi::FI_LOCAL_COMM | fi::FI_REMOTE_COMM;

/// Ends of a send that nobody is told of here: that its receive was found, or that what it says outlives its host.
pub(crate) const ENDS_NOT_HAD: u64 = fi::FI_MATCH_COMPLETE | fi::FI_COMMIT_COMPLETE;

/// Messages from one endpoint to another arrive in the order in which they were sent.
pub(crate) const ORDER: u64 = fi::FI_ORDER_SAS;

/// Of addresses: ours, which no other provider reads.
pub(crate) const ADDRESS_FORMAT: u32 = fi::FI_PROV_SPECIFIC as u32 | 0x4641;

/// Of what endpoints say to each other: likewise.
pub(crate) const PROTOCOL: u32 = fi::FI_PROV_SPECIFIC as u32 | 0x4641;

/// Bytes of the number that comes with a message. Open MPI puts the sender's rank there, and needs 4.
pub(crate) const DATA_BYTES: usize = 8;

/// Bytes of a message that are copied before the call returns. Open MPI's blocking sends of so many bytes or fewer are done by then, without
/// a completion; copying that much takes some 2 microseconds.
pub(crate) const INJECTED: usize = 16 << 10;

/// Operations of each kind that may be under way: nothing bounds them but memory.
pub(crate) const AT_ONCE: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(
        info: &'a fi::fi_info,
        endpoint: &'a fi::fi_ep_attr,
        domain: &'a fi::fi_domain_attr,
        transmit: &'a fi::fi_tx_attr,
    ) -> Asked<'a> {
        Asked {
            info: Some(info),
            transmit: Some(transmit),
            receive: None,
            endpoint: Some(endpoint),
            domain: Some(domain),
            is_elsewhere: false,
        }
    }

    fn info(caps: u64) -> fi::fi_info {
        fi::fi_info { caps, mode: fi::FI_CONTEXT | fi::FI_CONTEXT2, ..Default::default() }
    }

    fn kind(type_: u32) -> fi::fi_ep_attr {
        fi::fi_ep_attr { type_, ..Default::default() }
    }

    fn transmit(msg_order: u64) -> fi::fi_tx_attr {
        fi::fi_tx_attr { msg_order, op_flags: fi::FI_COMPLETION, ..Default::default() }
    }

    #[test]
    fn open_mpi_gets_what_it_asks_for() {
        // mtl_ofi_component.c of Open MPI 4.1.4.
        let domain = fi::fi_domain_attr {
            threading: fi::FI_THREAD_DOMAIN,
            resource_mgmt: fi::FI_RM_ENABLED,
            av_type: fi::FI_AV_MAP,
            cq_data_size: 4,
            ..Default::default()
        };
        let info = info(fi::FI_TAGGED | fi::FI_LOCAL_COMM | fi::FI_REMOTE_COMM | fi::FI_DIRECTED_RECV);
        let (endpoint, transmit) = (kind(fi::FI_EP_RDM), transmit(fi::FI_ORDER_SAS));
        let offer = Offer::to(&asked(&info, &endpoint, &domain, &transmit), false, 0).unwrap();
        assert_eq!(offer.threading, fi::FI_THREAD_DOMAIN);
        assert_eq!(offer.addresses, fi::FI_AV_MAP);
        assert_eq!(offer.transmit_flags, fi::FI_COMPLETION);
        assert_eq!(offer.capabilities & info.caps, info.caps);
    }

    #[test]
    fn nobody_gets_less_than_it_asks_for() {
        let domain = fi::fi_domain_attr::default();
        // What MPICH asks for, and what is not had.
        let [taken, matched] = [fi::FI_DELIVERY_COMPLETE, fi::FI_MATCH_COMPLETE]
            .map(|flag| fi::fi_tx_attr { op_flags: fi::FI_COMPLETION | flag, ..Default::default() });
        let (plain, ordered) = (transmit(0), transmit(fi::FI_ORDER_SAS | fi::FI_ORDER_RAW));
        let to = |caps, type_, transmit| {
            Offer::to(&asked(&info(caps), &kind(type_), &domain, transmit), false, 0).is_some()
        };
        assert!(to(fi::FI_MSG | fi::FI_MULTI_RECV, fi::FI_EP_RDM, &plain));
        // Layered providers look for endpoints to stand on.
        assert!(!to(fi::FI_MSG, fi::FI_EP_MSG, &plain));
        assert!(!to(fi::FI_MSG, fi::FI_EP_DGRAM, &plain));
        // Open MPI's one-sided component.
        assert!(!to(fi::FI_RMA | fi::FI_ATOMIC, fi::FI_EP_RDM, &plain));
        assert!(!to(fi::FI_TAGGED, fi::FI_EP_RDM, &ordered));
        assert!(to(fi::FI_TAGGED, fi::FI_EP_RDM, &taken) && !to(fi::FI_TAGGED, fi::FI_EP_RDM, &matched));
    }

    #[test]
    fn who_asks_for_nothing_is_told_of_everything() {
        let offer = Offer::to(&Asked::default(), false, 0).unwrap();
        assert_eq!(offer.capabilities, CAPABILITIES);
        assert!(Offer::to(&Asked::default(), true, 0).is_none());
    }

    #[test]
    fn who_names_another_fabric_or_domain_gets_none_of_ours() {
        let offered = |domain: Option<&CStr>, fabric: Option<&CStr>| {
            let name =
                |name: Option<&CStr>| name.map_or(std::ptr::null_mut(), |name| name.as_ptr().cast_mut());
            let mut domain = fi::fi_domain_attr { name: name(domain), ..Default::default() };
            let mut fabric = fi::fi_fabric_attr { name: name(fabric), ..Default::default() };
            let hints = fi::fi_info {
                domain_attr: &raw mut domain,
                fabric_attr: &raw mut fabric,
                ..Default::default()
            };
            // SAFETY: all that it points to is here until the end of the call.
            Offer::to(&unsafe { Asked::of(&raw const hints) }, false, 0).is_some()
        };
        assert!(offered(None, None) && offered(Some(NAME), Some(NAME)));
        assert!(!offered(Some(c"mlx5_0"), None) && !offered(None, Some(c"192.168.0.0/24")));
    }

    #[test]
    fn source_addresses_mean_nothing_to_who_did_not_ask_for_them() {
        let (info, endpoint, domain, transmit) =
            (info(fi::FI_MSG), kind(fi::FI_EP_RDM), fi::fi_domain_attr::default(), transmit(0));
        let offer = Offer::to(&asked(&info, &endpoint, &domain, &transmit), false, 0).unwrap();
        assert_eq!(offer.capabilities & fi::FI_DIRECTED_RECV, 0);
    }
}
