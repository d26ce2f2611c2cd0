//! Fetches certificates that decisions about signers depend on, during a download.

use weir_base::{Instant, Packet, Rng};
use weir_security::trust::{NeededPacket, Trust, TrustDecision};
use weir_transport::{
    ConsumerInput, InterestBatch, KeyId, METADATA_KEYWORD, Metadata, Nack, PathId, Request,
    RetryLimits, Selectors, is_hicn_metadata,
};
use weir_wire::{DataView, InterestView, LpHeader};

/// How long to wait for a certificate: 1 + 2 s.
const LIFETIME_MS: u64 = 2000;
const TRIES: RetryLimits = RetryLimits { sends_max: 2, nacks_max: 2, needs_route: true };

/// A certificate that decisions wait for.
struct CertificateLookup {
    locator: NeededPacket,
    request: Request,
    /// Signers without a decision, each with a packet that it signed, or claims to have signed.
    waiting: Vec<(KeyId, Packet)>,
}

pub(crate) struct CertificateLookups {
    open: Vec<CertificateLookup>,
    rng: Rng,
}

impl CertificateLookups {
    /// No lookups yet. `seed` is for nonces.
    pub(crate) fn new(seed: u64) -> Self {
        Self { open: Vec::new(), rng: Rng::from_seed(seed) }
    }

    /// Whether a lookup is pending.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Starts the decision about the signer of `packet`.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        key: KeyId,
        packet: Packet,
        trust: &mut dyn Trust,
        inputs: &mut Vec<ConsumerInput>,
    ) {
        let data = DataView::decode(&packet).expect("decoded by the consumer");
        offer_certificate(&data, trust);
        let verifier = match trust.decide(&data) {
            TrustDecision::Accept(verifier) => Ok(verifier),
            TrustDecision::Refuse(refusal) => Err(trust.explain(refusal)),
            TrustDecision::Fetch { wanted, must_be_fresh } => {
                let open = self.open.iter_mut().find(|lookup| lookup.locator == wanted);
                if let Some(lookup) = open {
                    return lookup.waiting.push((key, packet));
                }
                let request = request(&wanted, must_be_fresh, now);
                let waiting = vec![(key, packet)];
                return self.open.push(CertificateLookup { locator: wanted, request, waiting });
            }
        };
        inputs.push(ConsumerInput::Key { key, verifier });
    }

    /// Sends Interests that are due on one of `paths`. Decides without a certificate that cannot be
    /// found.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        paths: &[PathId],
        trust: &mut dyn Trust,
        inputs: &mut Vec<ConsumerInput>,
        out: &mut InterestBatch,
    ) {
        let mut at = 0;
        while let Some(lookup) = self.open.get_mut(at) {
            match lookup.request.poll(paths, now, &mut self.rng, out) {
                Ok(_) => at += 1,
                Err(_) => self.end(now, at, None, trust, inputs),
            }
        }
    }

    pub(crate) fn path_removed(&mut self, path: PathId, now: Instant) {
        self.open.iter_mut().for_each(|lookup| lookup.request.path_removed(path, now));
    }

    /// Takes a packet. Returns whether it answers a lookup.
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        header: &LpHeader,
        packet: &Packet,
        trust: &mut dyn Trust,
        inputs: &mut Vec<ConsumerInput>,
    ) -> bool {
        if self.open.is_empty() {
            return false;
        }
        if let Some(nack) = Nack::from_header(header) {
            let Ok(interest) = InterestView::decode(packet) else { return false };
            let asked = self.open.iter().position(|one| one.request.name() == interest.name);
            let Some(at) = asked else { return false };
            if self.open[at].request.on_nack(&interest, nack, now).is_err() {
                self.end(now, at, None, trust, inputs);
            }
            return true;
        }
        let Ok(data) = DataView::decode(packet) else { return false };
        let is_answered = |one: &CertificateLookup| one.request.is_answered_by(&data);
        if !self.open.iter().any(is_answered) {
            return false;
        }
        offer_certificate(&data, trust);
        // Several lookups may find it under different names. Goes backwards, because a lookup that
        // ends may start another at the end of the list.
        for at in (0..self.open.len()).rev() {
            if is_answered(&self.open[at]) {
                self.end(now, at, Some(packet), trust, inputs);
            }
        }
        true
    }

    /// A lookup has its certificate, or failed: decides again.
    fn end(
        &mut self,
        now: Instant,
        at: usize,
        packet: Option<&Packet>,
        trust: &mut dyn Trust,
        inputs: &mut Vec<ConsumerInput>,
    ) {
        let CertificateLookup { locator: wanted, waiting, .. } = self.open.swap_remove(at);
        trust.on_fetched(wanted, packet.map(|packet| &packet[..]));
        for (key, packet) in waiting {
            self.start(now, key, packet, trust, inputs);
        }
    }

    /// When [`CertificateLookups::poll`] has work.
    pub(crate) fn next_wakeup(&self) -> Instant {
        let due = self.open.iter().map(|lookup| lookup.request.due_at());
        due.min().unwrap_or(Instant::FAR_FUTURE)
    }
}

/// Metadata made by `weir put` contain the signer's certificate.
fn offer_certificate(data: &DataView<'_>, trust: &mut dyn Trust) {
    let is_metadata = data.name.components().any(|part| part.is_keyword(METADATA_KEYWORD));
    if (is_metadata || is_hicn_metadata(data.name))
        && let Some(certificate) = Metadata::decode(data.content).ok().and_then(|it| it.certificate)
    {
        trust.offer_certificate(&certificate);
    }
}

fn request(wanted: &NeededPacket, must_be_fresh: bool, now: Instant) -> Request {
    let mut name = match wanted {
        NeededPacket::Certificate(name) | NeededPacket::MetadataOf(name) => name.clone(),
    };
    if let NeededPacket::MetadataOf(_) = wanted {
        name.append_keyword(METADATA_KEYWORD);
    }
    let selectors =
        Selectors { can_be_prefix: true, must_be_fresh, lifetime_ms: LIFETIME_MS, nonce: 0 };
    Request::new(&name, selectors, TRIES, now)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_security::DigestVerifier;
    use weir_wire::{Data, KeyLocator, KeyLocatorView, Name, SignatureInfo};

    use super::*;

    /// Trusts every signer whose certificate it has.
    #[derive(Default)]
    struct TrustAllKnown {
        fetched: Vec<(NeededPacket, bool)>,
    }

    impl Trust for TrustAllKnown {
        fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
            let Some(KeyLocatorView::Name(locator)) = data.signature_info().key_locator else {
                panic!("its signer has a name")
            };
            let wanted = NeededPacket::Certificate(locator.to_name());
            match self.fetched.contains(&(wanted.clone(), true)) {
                true => TrustDecision::Accept(Arc::new(DigestVerifier)),
                false => TrustDecision::Fetch { wanted, must_be_fresh: false },
            }
        }

        fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
            self.fetched.push((wanted, packet.is_some()));
        }
    }

    fn signed_by(locator: &str) -> Packet {
        let locator = Some(KeyLocator::Name(locator.parse().unwrap()));
        let info = SignatureInfo { key_locator: locator, ..SignatureInfo::new(3) };
        Data::new("/a/54=%01/50=%00".parse().unwrap()).encode_signed(&info, |_| vec![0]).into()
    }

    /// One locator names the key, one its certificate, one has another algorithm: three signers for
    /// the consumer, but one certificate.
    #[test]
    fn certificate_serves_all_waiting_signers() {
        let (mut lookups, mut host) = (CertificateLookups::new(1), TrustAllKnown::default());
        let (mut inputs, mut out) = (Vec::new(), InterestBatch::default());
        let now = Instant::from_ns(1);
        for (key, locator) in ["/a/KEY/k", "/a/KEY/k/self/54=%07", "/a/KEY/k"].iter().enumerate() {
            let key = KeyId(key as u32);
            lookups.start(now, key, signed_by(locator), &mut host, &mut inputs);
        }
        lookups.poll(now, &[PathId(0)], &mut host, &mut inputs, &mut out);
        assert!(!out.is_empty() && inputs.is_empty());
        let name: Name = "/a/KEY/k/self/54=%07".parse().unwrap();
        let certificate = Data::new(name).encode_with_digest().into();
        let header = LpHeader::default();
        assert!(lookups.on_data(now, &header, &certificate, &mut host, &mut inputs));
        let mut keys: Vec<KeyId> = Vec::new();
        for input in inputs {
            let ConsumerInput::Key { key, verifier: Ok(_) } = input else {
                panic!("they are trusted")
            };
            keys.push(key);
        }
        keys.sort();
        assert_eq!(keys, [KeyId(0), KeyId(1), KeyId(2)]);
        assert_eq!(lookups.next_wakeup(), Instant::FAR_FUTURE, "none waits any more");
        assert_eq!(host.fetched.len(), 2, "two names");
    }
}
