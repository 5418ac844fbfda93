//! See `farlink_fuzz::bootstrap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::bootstrap(data));
