//! Tells Cargo which folders of data become part of the library.

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
