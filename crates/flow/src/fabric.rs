//! Messages between the processes of a parallel program, as pure machines: matching, eager and rendezvous messages, credits, and four
//! transports beneath them. The driver is the libfabric provider; [`endpoint::Endpoint`] is all that it sees.
//!
//! ```text
//!   Endpoint            what a process does: send, receive, peek, cancel; completions come out
//!     Messages          matching, eager or rendezvous, credits: turns operations into frames, for each peer in order, and back
//!     a peer nearby     frames go through shared memory: Endpoint::fill, Endpoint::on_frames
//!     a peer far away   frames go into packets
//!       Transport       which context a packet to a peer takes: one file each for RC, XRC, UD and DC
//!       Outgoing        a sending context: numbers, acknowledgements, retransmission, parity
//!       Incoming        a receiving context: order, acknowledgements, what parity gives back
//!       Path            to a host: round-trip time, loss, rate; shared by all contexts to it
//! ```

pub mod congestion;
pub mod endpoint;
pub mod incoming;
pub mod messages;
pub mod operation;
pub mod outgoing;
pub mod parity;
pub mod path;
pub mod seal;
pub mod settings;
pub mod transport;
