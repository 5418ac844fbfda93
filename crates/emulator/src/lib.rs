//! Links between real hosts: TUN devices and namespaces, driven by the link model.
#![forbid(unsafe_code)]

mod arena;
pub mod asked;
pub mod change;
pub mod client;
pub mod control;
mod due;
pub mod emulation;
mod engine;
mod groups;
mod hosts;
pub mod lateness;
pub mod path;
pub mod plan;
mod sleep;
pub mod state;
mod topology;

pub use change::Change;
pub use emulation::{Emulation, EmulationError};
pub use plan::Plan;
