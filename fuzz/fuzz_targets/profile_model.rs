//! See `farlink_fuzz::profile_model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::profile_model(data));
