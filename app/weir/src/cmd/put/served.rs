//! What is served, and under which names.

use std::sync::Arc;

use weir_security::Signer;
use weir_socket::ObjectStore;
use weir_wire::Name;

use super::publisher::UnpublishedEntry;

/// The name of what was put with its version.
pub(super) struct Root {
    pub(super) versioned: Name,
    pub(super) is_directory: bool,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Served {
    pub(super) store: ObjectStore,
    pub(super) root: Option<Root>,
    /// The names that the router is told.
    pub(super) names: Vec<Name>,
    /// The names of keys, which it is told if it likes.
    pub(super) key_names: Vec<Name>,
    pub(super) signer: Option<Name>,
    pub(super) unpublished: Vec<UnpublishedEntry>,
    /// Objects that were there as they would be signed.
    pub(super) reused: usize,
}

impl Served {
    /// The store denies, signed if there is a signer, what does not exist below the registered
    /// names.
    pub(super) fn claim_names(&mut self, signer: Option<Arc<dyn Signer>>) {
        if let Some(signer) = signer {
            self.store.sign_absence(signer);
        }
        self.names.iter().for_each(|name| self.store.own_prefix(name));
    }

    /// The number of the version of what was put.
    pub(super) fn version(&self) -> u64 {
        let last = self.root.as_ref().and_then(|root| root.versioned.as_view().last());
        last.and_then(|last| last.as_version()).unwrap_or(0)
    }

    /// How many entries should be served, and are not.
    pub(super) fn failures(&self) -> usize {
        self.unpublished.iter().filter(|one| one.is_failure()).count()
    }

    /// Without its file there is nothing to serve.
    pub(super) fn is_single_file(&self) -> bool {
        self.root.as_ref().is_some_and(|root| !root.is_directory)
            && self.store.objects().count() == 1
    }

    /// Names of keys that are not registered with the others.
    pub(super) fn key_names(&self) -> impl Iterator<Item = &Name> {
        let is_below = |name: &&Name, above: &Name| above.as_view().is_prefix_of(name.as_view());
        self.key_names
            .iter()
            .filter(move |name| !self.names.iter().any(|above| is_below(name, above)))
    }
}
