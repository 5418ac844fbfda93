//! See `farlink_fuzz::quantity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::quantity(data));
