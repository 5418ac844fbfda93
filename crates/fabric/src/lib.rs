//! A libfabric provider, `farlink`: unmodified MPI programs over long connections.
//!
//! Everything here is the C side: objects and tables as libfabric wants them, whose functions check, convert, call and map. What is sent
//! when is `farlink-flow`'s, and every system call `farlink-host`'s. One `driver` an endpoint holds both together under one lock.

mod absent;
mod address_vector;
mod bindings;
mod complaint;
mod completion;
mod completion_queue;
mod counter;
mod domain;
mod driver;
mod drivers;
mod endpoint;
mod engine;
mod entry;
mod event_queue;
mod fabric;
mod info;
mod memory;
mod message;
mod nearby;
mod object;
mod offer;
mod operations;
mod peers;
mod post;
mod progress;
mod proof;
mod provider;
mod queues;
mod registration;
mod statistics;
mod tagged;
mod version;
