//! See `farlink_fuzz::superpacket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::superpacket(data));
