#![no_main]

#[path = "../hicn.rs"]
mod hicn;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| hicn::check(octets));
