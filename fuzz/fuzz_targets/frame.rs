//! See `farlink_fuzz::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::frame(data));
