#![no_main]

#[allow(dead_code, reason = "each target runs one of the checks")]
#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| checks::name(octets));
