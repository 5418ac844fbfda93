//! An emulated link as a pure machine: one direction of a connection, with its rate, delay, queue, loss,
//! jitter, reordering, duplication, corruption, background load and framing.
//!
//! It does no I/O, reads no clock and starts no thread: time is an argument. `emulator` drives it with the
//! real clock between TUN devices; tests drive it with a virtual one under the protocols.
#![forbid(unsafe_code)]

pub mod background;
pub mod conditions;
pub mod framing;
mod jitter;
pub mod link;
pub mod loss;
mod queue;

pub use conditions::Conditions;
pub use framing::Framing;
pub use link::{Counters, Delivery, Link, Segments};
pub use loss::Loss;
