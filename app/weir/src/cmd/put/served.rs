//! The objects that are served, and their names.

use std::sync::Arc;

use weir_security::Signer;
use weir_socket::ObjectStore;
use weir_wire::Name;

use super::publisher::UnpublishedEntry;

/// The published file or directory: its name with version.
pub(super) struct Root {
    pub(super) versioned: Name,
    pub(super) is_directory: bool,
}

/// What is registered with the router.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Registration {
    /// The names of objects or directories. All names below are this producer's.
    #[default]
    Names,
    /// With a mapping, the address of each object. Then several producers can use one prefix, and
    /// none answers for another.
    Addresses,
    /// With a mapping and too many addresses, its prefix. Other producers may have names below it.
    SharedPrefix,
}

/// The object store of `weir put`, and the names to register.
#[derive(Default)]
pub(super) struct Served {
    pub(super) store: ObjectStore,
    pub(super) root: Option<Root>,
    /// Names to register with the router.
    pub(super) names: Vec<Name>,
    /// What these names are.
    pub(super) registration: Registration,
    /// Names of keys. Their registration is optional, as the metadata carries the certificate too.
    pub(super) key_names: Vec<Name>,
    pub(super) signer: Option<Name>,
    pub(super) unpublished: Vec<UnpublishedEntry>,
    /// Number of objects in the repository that did not need to be signed again.
    pub(super) reused: usize,
}

impl Served {
    /// Makes the store answer requests for missing objects below the registered names, unless
    /// another producer may have them. The answers are signed if there is a signer.
    pub(super) fn claim_names(&mut self, signer: Option<Arc<dyn Signer>>) {
        if self.registration == Registration::SharedPrefix {
            return;
        }
        if let Some(signer) = signer {
            self.store.sign_absence(signer);
        }
        self.names.iter().for_each(|name| self.store.own_prefix(name));
    }

    /// The version number of the published file or directory.
    pub(super) fn version(&self) -> u64 {
        let last = self.root.as_ref().and_then(|root| root.versioned.as_view().last());
        last.and_then(|last| last.as_version()).unwrap_or(0)
    }

    /// The number of entries that should be served, but are not.
    pub(super) fn failures(&self) -> usize {
        self.unpublished.iter().filter(|one| one.is_failure()).count()
    }

    /// Whether a single file is served, so that its loss ends the command.
    pub(super) fn is_single_file(&self) -> bool {
        self.root.as_ref().is_some_and(|root| !root.is_directory)
            && self.store.objects().count() == 1
    }

    /// Names of keys that no registered name covers.
    pub(super) fn key_names(&self) -> impl Iterator<Item = &Name> {
        let is_below = |name: &&Name, above: &Name| above.as_view().is_prefix_of(name.as_view());
        self.key_names
            .iter()
            .filter(move |name| !self.names.iter().any(|above| is_below(name, above)))
    }
}
