#![no_main]

#[path = "../websocket.rs"]
mod websocket;

libfuzzer_sys::fuzz_target!(|script: &[u8]| websocket::check(script));
