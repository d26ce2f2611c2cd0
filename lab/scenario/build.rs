//! Declares to Cargo which data folders the library embeds.

fn main() {
    for folder in [
        "chopcop",
        "nb-cache",
        "ccnx-measurement",
        "multipath-cache-management",
        "socket-api",
        "examples",
    ] {
        println!("cargo::rerun-if-changed=../{folder}");
    }
}
