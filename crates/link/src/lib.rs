//! An emulated link as a pure machine: rate, delay, queue, loss, reordering, framing.
#![forbid(unsafe_code)]
