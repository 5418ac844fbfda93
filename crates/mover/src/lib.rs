//! Memory and file transfers, client and server.
//!
//! [`memory::run`] carries out one transfer and returns its record; [`server::Server`] is the far end. Which of
//! the two sends is the request's choice: sender and receiver are the same at both ends.
//!
//! Nothing here prints; what a person may want to see is handed to the caller.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod bootstrap;
pub mod channel;
pub mod connection;
pub mod copy;
pub mod facts;
pub mod far;
pub mod far_host;
pub mod memory;
pub mod record;
pub mod record_file;
pub mod secure;
pub mod server;

mod account;
mod automatic;
mod budget;
mod chain;
mod control;
mod dial;
mod ports;
mod role;
mod tuning;

pub use account::Progress;
pub use chain::chain;
pub use control::ControlError;
pub use dial::DialError;
pub use tuning::TuneError;
