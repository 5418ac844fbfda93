//! See `farlink_fuzz::key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::key(data));
