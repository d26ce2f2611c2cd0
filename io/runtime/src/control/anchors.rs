//! The configured trust anchors, for commands from other hosts and for prefix announcements.

use weir_manage::AnchorLookup;
use weir_security::Verifier;
use weir_wire::KeyLocatorView;

use crate::config::TrustAnchor;

/// Certificates whose keys may sign management commands, or prefix announcements.
pub(super) struct Anchors(pub(super) Vec<TrustAnchor>);

impl AnchorLookup for Anchors {
    fn verifier(&self, locator: KeyLocatorView<'_>, now_unix_ms: u64) -> Option<&dyn Verifier> {
        let is_named = |anchor: &&TrustAnchor| match locator {
            KeyLocatorView::Name(name) => {
                name == anchor.certificate.name() || name == anchor.certificate.key_name()
            }
            KeyLocatorView::Digest(digest) => digest == anchor.certificate.public_key_digest(),
        };
        let now_unix_s = (now_unix_ms / 1000) as i64;
        self.0
            .iter()
            .filter(|anchor| anchor.certificate.validity().contains(now_unix_s))
            .find(is_named)
            .map(|anchor| &*anchor.verifier)
    }
}
