//! What the processes of a parallel program say to each other: [`frame`]s, which are messages and their parts, in sealed
//! [`datagram`]s between hosts and in shared memory within one.

pub mod address;
pub mod datagram;
pub mod frame;

/// The version of both, in each datagram and in each endpoint's address: programs of different versions do not talk.
pub const VERSION: u8 = 4;
