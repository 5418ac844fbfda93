//! What a sender tells of its part.

use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::copy::Account;
use farlink_wire::message::{Sent, Text};
use farlink_wire::quantity::Nanos;

use super::end::End;

/// The sender's account.
pub(super) fn sender_account(end: &End) -> Account {
    let End::Sender(sending) = end else { return Account::default() };
    let stages = sending.timing.stages();
    let infos = sending.tcp();
    let sum = |part: fn(&TcpInfo) -> u64| infos.iter().map(|(_, info)| part(info)).sum::<u64>();
    let facts = sending.socket_facts();
    let transport = Sent {
        cpu: stages.cpu,
        buffer: facts.buffer,
        retransmits: sum(|info| info.retransmits.into()),
        congestion: Text::from(facts.congestion),
        origin: facts.origin,
        reason: facts.reason.map(Text::from),
        mtu: infos.first().map_or(0, |(_, info)| info.path_mtu),
        zero_copy: false,
        circuit: sending.manner.circuit.as_ref().and_then(|circuit| circuit.account()),
    };
    Account {
        stages,
        transport,
        busy: Nanos(sum(|info| info.busy.0)),
        receiver_limited: Nanos(sum(|info| info.receiver_limited.0)),
        buffer_limited: Nanos(sum(|info| info.buffer_limited.0)),
        path: sending.steering.path(),
        careful_resume: sending.steering.careful_resume(),
    }
}
