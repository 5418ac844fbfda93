//! Memory transfers, client and server.
#![forbid(unsafe_code)]
