//! See `farlink_fuzz::schedule`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::schedule(data));
