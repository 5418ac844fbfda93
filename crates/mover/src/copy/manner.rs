//! How the sending end of a copy goes about it.

use std::sync::Arc;

use farlink_host::clock::monotonic;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::copy::{Request, SavedPath};
use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::automatic;
use crate::budget::Budget;
use crate::control::Control;
use crate::tuning::{CircuitWatch, Tuning};

/// How the sending end goes about it.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// Ask what is there before sending it.
    pub(crate) resume: bool,
    /// Whether the receiver may leave files as they stand.
    pub(crate) may_stay: bool,
    /// Whether it judges by times and sizes alone: of what is small nothing is read before it is wanted.
    pub(crate) by_times: bool,
    /// Hash what is sent.
    pub(crate) verify: bool,
    /// The secret of frames' tags, where they have some.
    pub(crate) seal: Option<[u8; 32]>,
    /// Choose the congestion control by the round trip.
    pub(crate) automatic: bool,
    /// Whether somebody chose the size of the buffers.
    pub(crate) is_buffer_fixed: bool,
    /// Whether the kernel may pace.
    pub(crate) may_pace: bool,
    /// Most bits a second.
    pub(crate) limit: Option<BitsPerSec>,
    /// Whether what becomes of each name is of interest here.
    pub(crate) report: bool,
    /// How long a block may be on its way before an idle stream sends it too.
    pub(crate) stale: Nanos,
    /// Whether nobody chose how TCP is to send: over a short path as it does so best there.
    pub(crate) follows_path: bool,
    /// What is known of the path from before, where that is of use.
    pub(crate) saved: Option<SavedPath>,
    /// Of the control connection when the copy began, zero where that is not known.
    pub(crate) least_rtt: Nanos,
    /// Looks at the circuit, where there is one.
    pub(crate) circuit: Option<Arc<CircuitWatch>>,
    /// What files take while they are open is of this.
    pub(crate) budget: Budget,
}

impl Manner {
    /// As `request` asks for it, within `budget`.
    pub(crate) fn of(
        request: &Request,
        seal: Option<[u8; 32]>,
        report: bool,
        control: &Control,
        budget: Budget,
    ) -> Self {
        let tuning = Tuning::from(request);
        Self {
            resume: request.asks_first(),
            may_stay: request.update,
            by_times: request.update && !request.resume,
            verify: request.verify,
            seal,
            automatic: automatic::is_asked(request.congestion.as_ref()),
            is_buffer_fixed: request.buffer.is_some(),
            may_pace: tuning.may_pace(),
            limit: request.limit,
            report,
            stale: stale_after(control),
            follows_path: automatic::follows_path(request),
            saved: request.saved.filter(|_| automatic::follows_path(request) && request.limit.is_none()),
            least_rtt: control.least_rtt().unwrap_or_default(),
            circuit: CircuitWatch::of(&tuning, monotonic()),
            budget,
        }
    }
}

/// How long a block may be on its way over the path of `control` before an idle stream sends it, too.
pub(super) fn stale_after(control: &Control) -> Nanos {
    let rtt =
        control.channel().tcp().and_then(|tcp| TcpInfo::of(tcp).ok()).map_or(Nanos::ZERO, |info| info.srtt);
    Nanos(rtt.0 * 8).max(Nanos(2_000_000_000))
}
