//! Every byte layout that leaves the process: quantities as people write them, transfer records,
//! and views of the packets that a TUN device carries.
//!
//! Nothing here does I/O, reads a clock or starts a thread.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod cast;
pub mod checksum;
pub mod entry;
pub mod fabric;
pub mod frame;
pub mod ip;
pub mod journal;
pub mod key;
pub mod membership;
pub mod message;
pub mod path;
pub mod profile_model;
pub mod quantity;
pub mod record;
pub mod refusal;
mod rest;
pub mod superpacket;
pub mod vnet;
