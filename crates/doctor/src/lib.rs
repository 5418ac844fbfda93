//! What on this host would keep a transfer from filling a path: [`Facts`] are read from the host, and [`examine`]
//! judges them for a [`NetworkPath`]. Judging reads nothing, so that every judgement has a test with made-up facts.
#![forbid(unsafe_code)]

mod facts;
mod finding;
mod judge;
mod path;
mod script;
mod window;

pub use facts::Facts;
pub use finding::{Finding, Value};
pub use judge::{examine, root_would_add, unexamined};
pub use path::{NetworkPath, PathError};
pub use script::script;
