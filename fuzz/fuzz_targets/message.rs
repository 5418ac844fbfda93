//! See `farlink_fuzz::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::message(data));
