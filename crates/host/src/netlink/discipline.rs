//! The queueing disciplines in which packets wait to be sent (RTM_GETQDISC of rtnetlink(7)).

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::{Netlink, NetlinkError};

/// A queueing discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Interface index.
    pub interface: u32,
    /// As tc(8) names it: `fq`, `mq`.
    pub kind: String,
    /// The discipline's own number.
    pub major: u16,
    /// The number of the one that it is part of; `None` where it is the interface's.
    pub parent: Option<u16>,
}

impl Netlink {
    /// The queueing disciplines of every interface.
    ///
    /// # Errors
    /// [`NetlinkError`] as the kernel gave it.
    pub fn disciplines(&mut self) -> Result<Vec<Discipline>, NetlinkError> {
        let asked = "list the queueing disciplines";
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        self.send(request, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut found = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full().map_err(NetlinkError::Socket)?;
            let mut rest = &bytes[..];
            while let Some((message, kind, after)) = first(rest) {
                rest = after;
                // It says no more than that it is the end.
                if kind == DONE {
                    return Ok(found);
                }
                // One whose options are not understood is left out.
                let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) else {
                    continue;
                };
                match message.payload {
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(NetlinkError::Refused { asked, source: error.to_io() });
                    }
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(message)) => {
                        found.extend(discipline(message));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The kinds of discipline that packets of interface `index` pass, each once: where a multi-queue device has one for
/// every queue, those.
#[must_use]
pub fn leaves(disciplines: &[Discipline], index: u32) -> Vec<String> {
    let own = || disciplines.iter().filter(|discipline| discipline.interface == index);
    let Some(root) = own().find(|discipline| discipline.parent.is_none()) else { return Vec::new() };
    let mut kinds: Vec<_> = match root.kind.as_str() {
        "mq" | "mqprio" => {
            own().filter(|one| one.parent == Some(root.major)).map(|one| one.kind.clone()).collect()
        }
        kind => vec![kind.to_owned()],
    };
    kinds.sort();
    kinds.dedup();
    kinds
}

fn discipline(message: TcMessage) -> Option<Discipline> {
    let header = message.header;
    if header.parent == TcHandle::INGRESS {
        return None;
    }
    let kind = message.attributes.into_iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind),
        _ => None,
    })?;
    let parent = (header.parent != TcHandle::ROOT).then_some(header.parent.major);
    Some(Discipline {
        interface: u32::try_from(header.index).ok()?,
        kind,
        major: header.handle.major,
        parent,
    })
}

/// The first message of several in one answer, its type, and what follows it; `None` at the end of the answer.
fn first(bytes: &[u8]) -> Option<(&[u8], u16, &[u8])> {
    // struct nlmsghdr: length of the whole, type; the next begins at a multiple of four.
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let message = bytes.get(..length).filter(|message| message.len() >= HEADER)?;
    Some((message, kind, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// `NLMSG_DONE` and the length of a header, netlink(7).
const DONE: u16 = 3;
const HEADER: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn one(interface: u32, kind: &str, major: u16, parent: Option<u16>) -> Discipline {
        Discipline { interface, kind: kind.to_owned(), major, parent }
    }

    #[test]
    fn the_queues_of_a_device_are_what_counts() {
        let disciplines = [
            one(2, "mq", 1, None),
            one(2, "fq", 0, Some(1)),
            one(2, "fq", 0, Some(1)),
            one(3, "tbf", 7, None),
            one(3, "fq_codel", 8, Some(7)),
        ];
        assert_eq!(leaves(&disciplines, 2), ["fq"]);
        assert_eq!(leaves(&disciplines, 3), ["tbf"]);
        assert_eq!(leaves(&disciplines, 4), [] as [String; 0]);
    }

    #[test]
    fn the_loopback_interface_has_one_or_none() {
        let disciplines = Netlink::open().unwrap().disciplines().unwrap();
        assert!(disciplines.iter().all(|discipline| !discipline.kind.is_empty()), "{disciplines:?}");
    }

    #[test]
    fn an_answer_that_is_cut_ends() {
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[200, 0, 0, 0, 3, 0]), None);
        assert_eq!(first(&[0; 16]), None);
    }
}
