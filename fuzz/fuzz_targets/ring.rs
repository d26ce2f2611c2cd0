#![no_main]

#[path = "../ring.rs"]
mod ring;

libfuzzer_sys::fuzz_target!(|script: &[u8]| ring::check(script));
