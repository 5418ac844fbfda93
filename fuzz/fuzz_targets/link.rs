//! See `farlink_fuzz::link`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::link(data));
