//! A consumer for each object.
//!
//! The first signer of an object is trusted for that object alone. One consumer for all objects
//! would refuse every other signer.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use weir_security::trust::Trust;
use weir_socket::{Consumer, ConsumerOptions};
use weir_transport::NameMapping;
use weir_wire::Name;

/// Upper bound of objects whose signers are known.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// Makes the trust for the names below an object.
type TrustOf = Box<dyn Fn(&Consumer, &Name) -> Consumer + Send + Sync>;

/// The consumers of a front.
pub(super) struct Consumers {
    /// Its options are those of all.
    base: Consumer,
    /// The mappings of the names below prefixes. The longest prefix counts.
    mappings: Vec<(Name, NameMapping)>,
    with_trust_of: TrustOf,
    by_object: Mutex<LruCache<Name, Consumer>>,
}

impl Consumers {
    pub(super) fn new<T: Trust + Send + 'static>(
        base: Consumer,
        mappings: Vec<(Name, NameMapping)>,
        trust_of: impl Fn(&Name) -> T + Send + Sync + 'static,
    ) -> Self {
        let with_trust_of =
            Box::new(move |base: &Consumer, object: &Name| base.with_trust(trust_of(object)));
        Self { base, mappings, with_trust_of, by_object: Mutex::new(LruCache::new(OBJECTS_MAX)) }
    }

    /// Forgets an object whose first signer was refused. Certificates that did not arrive are
    /// requested again.
    pub(super) fn restart(&self, object: &Name) {
        self.by_object.lock().unwrap_or_else(PoisonError::into_inner).pop(object);
    }

    /// The consumer of an object. All its versions have the same trust.
    pub(super) fn of(&self, object: &Name) -> Consumer {
        let mut by_object = self.by_object.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let mut consumer = (self.with_trust_of)(&self.base, object);
            let mapping = self.mapping_of(object);
            let options = ConsumerOptions { mapping, ..consumer.options().clone() };
            consumer.set_options(options).expect("only the mapping differs");
            consumer
        };
        by_object.get_or_insert_ref(object, make).clone()
    }

    fn mapping_of(&self, object: &Name) -> NameMapping {
        let above = self.mappings.iter();
        let above = above.filter(|(prefix, _)| prefix.as_view().is_prefix_of(object.as_view()));
        let longest = above.max_by_key(|(prefix, _)| prefix.as_view().component_count());
        longest.map_or(NameMapping::Identity, |(_, mapping)| *mapping)
    }
}
