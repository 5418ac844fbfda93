//! See `farlink_fuzz::journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::journal(data));
