//! Structures that `get` reads in addition to segments: metadata, manifest parts, certificates.
#![no_main]

use weir_security::Certificate;
use weir_security::manifest::{DigestManifest, ManifestPart, PartId};

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    if let Ok(decoded) = ManifestPart::decode(octets) {
        assert_eq!(ManifestPart::decode(&decoded.encode()), Ok(decoded));
        let part = PartId { level: decoded.level, number: 0 };
        let _ = DigestManifest::new(decoded.shape, 1 << 20).add_part(part, octets);
    }
    let _ = Certificate::decode(octets);
    let _ = weir_transport::Metadata::decode(octets);
});
