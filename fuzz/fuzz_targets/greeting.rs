//! See `farlink_fuzz::greeting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::greeting(data));
