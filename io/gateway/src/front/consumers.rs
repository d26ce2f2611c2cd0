//! A consumer for each object.
//!
//! The first signer of an object is trusted for that object alone. One consumer for all objects
//! would refuse every other signer.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use weir_security::trust::Trust;
use weir_socket::Consumer;
use weir_wire::Name;

/// Upper bound of objects whose signers are known.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// Makes the trust for the names below an object.
type TrustOf = Box<dyn Fn(&Consumer, &Name) -> Consumer + Send + Sync>;

/// The consumers of a front.
pub(super) struct Consumers {
    /// Its options are those of all.
    base: Consumer,
    with_trust_of: TrustOf,
    by_object: Mutex<LruCache<Name, Consumer>>,
}

impl Consumers {
    pub(super) fn new<T: Trust + Send + 'static>(
        base: Consumer,
        trust_of: impl Fn(&Name) -> T + Send + Sync + 'static,
    ) -> Self {
        let with_trust_of =
            Box::new(move |base: &Consumer, object: &Name| base.with_trust(trust_of(object)));
        Self { base, with_trust_of, by_object: Mutex::new(LruCache::new(OBJECTS_MAX)) }
    }

    /// The consumer of an object. All its versions have the same trust.
    pub(super) fn of(&self, object: &Name) -> Consumer {
        let mut by_object = self.by_object.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || (self.with_trust_of)(&self.base, object);
        by_object.get_or_insert_ref(object, make).clone()
    }
}
