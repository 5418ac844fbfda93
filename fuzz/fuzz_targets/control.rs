//! See `farlink_fuzz::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::control(data));
