//! See `farlink_fuzz::path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::path(data));
