//! See `farlink_fuzz::fabric_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::fabric_frame(data));
