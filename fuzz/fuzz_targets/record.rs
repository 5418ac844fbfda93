//! See `farlink_fuzz::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::record(data));
