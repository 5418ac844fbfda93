//! See `farlink_fuzz::fabric_datagram`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farlink_fuzz::fabric_datagram(data));
