//! Who may command: signatures of command Interests, old and new format, and replays.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_security::Verifier;
use weir_wire::{InterestView, KeyLocatorView, NameView, SignatureInfoView, tlv};

/// Which signatures of prefix announcements are good enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Any, and none at all (NFD, `certfile any`).
    #[default]
    Any,
    /// Those of a configured trust anchor.
    Anchors,
}

/// The configured trust anchors.
pub trait AnchorLookup: Send {
    /// The verifier for the key that a KeyLocator names: the name of an anchor certificate or of
    /// its key, or the digest of its key. `None` when that is no anchor, or not valid now.
    fn verifier(&self, locator: KeyLocatorView<'_>, now_unix_ms: u64) -> Option<&dyn Verifier>;
}

/// SignatureTime must be this near to the router's clock, in milliseconds (NFD).
const GRACE_MS: u64 = 120_000;
/// Keys whose last SignatureTime is remembered (NFD).
const RECORDS_MAX: usize = 1000;
/// For how long it is remembered (NFD).
const RECORD_LIFETIME_NS: u64 = 3600 * NS_PER_S;

/// The signature of a command Interest in either format.
struct CommandSignature<'a> {
    info: SignatureInfoView<'a>,
    portions: Vec<&'a [u8]>,
    value: &'a [u8],
    time_ms: Option<u64>,
}

impl<'a> CommandSignature<'a> {
    fn of(interest: &'a InterestView<'a>) -> Option<Self> {
        if let Some(signature) = &interest.signature() {
            let info = signature.info();
            return Some(Self {
                info,
                portions: signature.signed_portion().to_vec(),
                value: signature.value,
                time_ms: info.time_ms,
            });
        }
        Self::of_name(interest.name)
    }

    /// The format of packet specification 0.2: the name ends in timestamp, nonce, SignatureInfo and
    /// SignatureValue, each in a generic component, and all before the last is signed.
    fn of_name(name: NameView<'a>) -> Option<Self> {
        let info_at = name.component_count().checked_sub(2)?;
        let info = tlv::read_single_of(name.component(info_at)?.value, tlv::SIGNATURE_INFO).ok()?;
        let value = tlv::read_single_of(name.last()?.value, tlv::SIGNATURE_VALUE).ok()?;
        let time_ms = info_at.checked_sub(2).and_then(|at| name.component(at)?.as_number());
        Some(Self {
            info: SignatureInfoView::from_value(info, tlv::SIGNATURE_INFO).ok()?,
            portions: alloc::vec![name.prefix(info_at + 1).value()],
            value,
            time_ms,
        })
    }
}

/// Last SignatureTime by key.
#[derive(Debug, Default)]
pub(crate) struct ReplayRecords {
    keys: BTreeMap<Vec<u8>, (u64, Instant)>,
    by_age: BTreeSet<(Instant, Vec<u8>)>,
}

impl ReplayRecords {
    /// Whether a command of this key and time is new.
    fn is_new(&self, key: &[u8], time_ms: u64, now_unix_ms: u64) -> bool {
        now_unix_ms.abs_diff(time_ms) <= GRACE_MS
            && self.keys.get(key).is_none_or(|(last, _)| time_ms > *last)
    }

    fn remember(&mut self, key: &[u8], time_ms: u64, now: Instant) {
        if let Some((_, seen)) = self.keys.insert(key.to_vec(), (time_ms, now)) {
            self.by_age.remove(&(seen, key.to_vec()));
        }
        self.by_age.insert((now, key.to_vec()));
        while let Some((seen, _)) = self.by_age.first()
            && (self.keys.len() > RECORDS_MAX || now.ns_since(*seen) > RECORD_LIFETIME_NS)
        {
            let Some((_, key)) = self.by_age.pop_first() else { break };
            self.keys.remove(&key);
        }
    }
}

/// Whether one of the anchors signed a command Interest, which is no replay.
pub(crate) fn is_anchored(
    interest: &InterestView<'_>,
    anchors: Option<&dyn AnchorLookup>,
    records: &mut ReplayRecords,
    now: Instant,
    now_unix_ms: u64,
) -> bool {
    let Some(anchors) = anchors else { return false };
    let Some(signature) = CommandSignature::of(interest) else { return false };
    let Some(KeyLocatorView::Name(key)) = signature.info.key_locator else { return false };
    let verifier = anchors.verifier(KeyLocatorView::Name(key), now_unix_ms);
    let (Some(verifier), Some(time_ms)) = (verifier, signature.time_ms) else { return false };
    let is_genuine = verifier.signature_type().0 == signature.info.signature_type
        && records.is_new(key.value(), time_ms, now_unix_ms)
        && verifier.verify(&signature.portions, signature.value).is_ok();
    if is_genuine {
        records.remember(key.value(), time_ms, now);
    }
    is_genuine
}
