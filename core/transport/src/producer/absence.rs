//! Signed answers that a name does not exist: Data of ContentType Nack.
//!
//! A network-layer Nack is valid for one hop only, and it is not authenticated. This answer is
//! signed. Routers cache it while it is fresh, so consumers and routers need no further requests.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S, Packet};
use weir_security::{Signer, sign_data};
use weir_wire::{Data, InterestView, Name, NameView, PACKET_SIZE_MAX, content_type};

/// How long the answer is fresh. Short, because a missing name may be published at any time.
const FRESHNESS_MS: u64 = 1000;
/// Upper bound of signed answers per second: each request for a random name costs a signature.
const SIGNED_MAX: u32 = 1000;

#[derive(Default)]
pub(super) struct Absence {
    signer: Option<Arc<dyn Signer>>,
    /// Prefixes that only this producer serves, by TLV-VALUE.
    prefixes: BTreeSet<Vec<u8>>,
    /// Answers signed in the second that began then.
    signed: u32,
    second_began: Instant,
}

impl Absence {
    pub(super) fn set_signer(&mut self, signer: Arc<dyn Signer>) {
        self.signer = Some(signer);
    }

    pub(super) fn add_prefix(&mut self, prefix: &Name) {
        self.prefixes.insert(prefix.value().to_vec());
    }

    /// The answer to an Interest for a name that does not exist; `None` if this producer gives
    /// none.
    pub(super) fn sign_answer(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
    ) -> Option<Packet> {
        let signer = self.signer.as_deref()?;
        let name = interest.name;
        // A name with an implicit digest requests one packet, which a Nack packet cannot be.
        if name.last()?.is_implicit_digest() || !is_owned(&self.prefixes, name) {
            return None;
        }
        if now.ns_since(self.second_began) >= NS_PER_S {
            (self.signed, self.second_began) = (0, now);
        }
        if self.signed == SIGNED_MAX {
            return None;
        }
        self.signed += 1;
        let data =
            Data::new(name.to_name()).content_type(content_type::NACK).freshness_ms(FRESHNESS_MS);
        let packet = sign_data(&data, signer).ok()?;
        (packet.len() <= PACKET_SIZE_MAX).then(|| packet.into())
    }
}

fn is_owned(prefixes: &BTreeSet<Vec<u8>>, name: NameView<'_>) -> bool {
    let lengths = 0..=name.component_count();
    !prefixes.is_empty()
        && lengths.into_iter().any(|length| prefixes.contains(name.prefix(length).value()))
}
