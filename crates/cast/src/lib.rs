//! Multicast of files: one sender, and receivers of which a slow one costs the others nothing.
//!
//! The protocol is [`farlink_flow::cast`]: machines without a clock. Here are the sockets, files and threads around them:
//! [`send::run`] is one session of a sender, [`receive::run`] what a receiver does of one session or of all that come.
//!
//! ```text
//! sender   the caller's thread   machine, group's socket, files
//!          farlink-door          control connections: admits receivers, reads and writes frames
//! receiver the caller's thread   machine, group's socket, files, control connection
//! ```
//!
//! Nothing here prints; what a person may want to see is handed to the caller.
#![forbid(unsafe_code)]

pub mod error;
pub mod group;
pub mod receive;
pub mod send;

mod blocks;
mod contact;
mod door;
mod line;
mod name;
mod outbox;
mod products;
mod record;
mod stopwatch;
mod storage;
