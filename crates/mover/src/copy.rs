//! File transfers: verified, resumable, over several connections at once.
//!
//! A client and a server, which are thin, over a sender and a receiver, which both use. What is left to do is in
//! [`farlink_flow::schedule`]; what has come in [`farlink_flow::arrivals`]; how files are read and written in [`source`] and [`target`].

mod again;
pub(crate) mod allowed;
mod attempt;
mod bottleneck;
mod client;
mod conversation;
mod end;
mod error;
pub mod file_event;
pub mod filter;
mod foretell;
mod judging;
mod ledger;
pub(crate) mod local;
mod lost;
mod manner;
mod names;
mod outgoing;
pub mod pattern;
mod plan;
mod receiving;
mod record;
mod redial;
mod samples;
mod saved_paths;
mod seal;
mod sender_account;
mod sending;
pub(crate) mod serve;
mod socket_facts;
pub mod source;
mod state;
mod steering;
pub mod store;
mod stream_in;
mod stream_out;
mod supply;
pub mod target;
mod telling;
mod timing;
mod unfinished;
mod worker;

pub use attempt::CIRCUIT_STREAMS;
pub use bottleneck::Bottleneck;
pub use client::run;
pub use error::CopyError;
pub use foretell::{Foretold, foretell};
pub use plan::{Finished, Listener, Notice, Plan, Progress, Summary};
