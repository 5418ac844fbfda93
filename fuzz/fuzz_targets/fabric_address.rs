//! See `farlink_fuzz::fabric_address`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::fabric_address(data));
