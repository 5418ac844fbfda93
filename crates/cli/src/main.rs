//! The `farlink` command.
#![forbid(unsafe_code)]
fn main() {}
