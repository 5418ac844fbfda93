//! See `farlink_fuzz::fabric_parity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::fabric_parity(data));
