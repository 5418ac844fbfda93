//! The protocols of Farlink as pure machines: block scheduling, digests, pacing, multicast repair.
//!
//! Nothing here does I/O, reads a clock or starts a thread.
#![forbid(unsafe_code)]

pub mod aead;
pub mod arrivals;
pub mod careful_resume;
pub mod cast;
pub mod ceiling;
pub mod digest;
pub mod fabric;
pub mod numbers;
pub mod schedule;
pub mod streams;
pub mod timetable;
pub mod token_bucket;
