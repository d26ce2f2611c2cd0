//! What `get` reads beside segments: metadata, manifest parts, certificates, listings of folders.
#![no_main]

use weir_security::Certificate;
use weir_security::manifest::{DigestManifest, ManifestPart};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    if let Ok(part) = ManifestPart::decode(octets) {
        assert_eq!(ManifestPart::decode(&part.encode()), Ok(part));
        let _ = DigestManifest::new(1 << 20).add_part(0, octets);
    }
    let _ = Certificate::decode(octets);
    let _ = weir_transport::Metadata::decode(octets);
});
