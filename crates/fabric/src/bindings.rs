//! libfabric's types, made by `build.rs` from its headers.
#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "made from C"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
