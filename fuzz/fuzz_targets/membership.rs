//! See `farlink_fuzz::membership`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::membership(data));
