//! Which signers the user of a key chain trusts.

use std::path::Path;
use std::sync::Arc;

use weir_security::trust::{
    Anchors, KeySource, KnownSigners, NeededPacket, Trust, TrustBasis, TrustDecision, TrustPolicy,
};
use weir_security::{Certificate, Verifier};
use weir_wire::{DataView, Name};

use super::{KeyChain, KeyChainError, read_certificate, unix_time_s};
use crate::verifier::Provider;

static PROVIDER: Provider = Provider;

impl KeySource for KeyChain {
    fn own_certificate(&self, name: &Name) -> Option<Certificate> {
        let key = self.find(name).ok()?;
        self.certificate_for(&key.name).ok().flatten()
    }

    fn shared_key(&self, name: &Name) -> Result<Box<dyn Verifier>, String> {
        match self.hmac_verifier(name) {
            Ok(verifier) => Ok(Box::new(verifier)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn certificates(&self) -> Vec<Certificate> {
        self.certificates().unwrap_or_default()
    }
}

/// A [`TrustPolicy`] with the anchors, keys and known signers of a key chain.
pub struct UserTrust {
    /// The requested name. Signers are remembered for all names below it.
    root: Name,
    chain: Option<KeyChain>,
    policy: TrustPolicy,
    /// The certificate that the user has named for this content.
    named: Option<Certificate>,
}

impl UserTrust {
    /// Reads the user's trust settings. `anchor_files`, if given, replace everything else. Without
    /// a key chain nothing is known and nothing is remembered.
    pub fn new(
        root: Name,
        chain: Option<KeyChain>,
        anchor_files: &[impl AsRef<Path>],
    ) -> Result<Self, KeyChainError> {
        let (mut anchors, mut known) = (Anchors::default(), KnownSigners::default());
        if let Some(chain) = &chain {
            anchors = chain.anchors()?;
            known = chain.known_signers()?;
        }
        if !anchor_files.is_empty() {
            anchors = Anchors::default();
        }
        for file in anchor_files {
            let certificate = read_certificate(file.as_ref())?;
            anchors.add(certificate, &PROVIDER)?;
        }
        let needs_anchor = !anchor_files.is_empty();
        let keys = chain.clone().map(|chain| Arc::new(chain) as Arc<dyn KeySource>);
        let policy = TrustPolicy::new(anchors, needs_anchor, known, keys, &PROVIDER);
        Ok(Self { root, chain, policy, named: None })
    }

    /// Trust for the names below `root`, with the settings that were read for this one.
    pub fn for_names_below(&self, root: Name) -> Self {
        let (chain, policy) = (self.chain.clone(), self.policy.restarted());
        Self { root, chain, policy, named: None }
    }

    pub fn policy(&mut self) -> &mut TrustPolicy {
        &mut self.policy
    }

    /// Uses a certificate that the user has named for this content, because its producer may serve
    /// none. Its key is treated like any other. [`Self::keep_named_certificate`] keeps it.
    pub fn use_certificate(&mut self, certificate: Certificate) {
        self.policy.offer_certificate(certificate.wire());
        self.named = Some(certificate);
    }

    /// Records signers trusted on first use. Called after everything has been verified. If the user
    /// accepts unverified packets, records nothing. Returns whether a signer has been recorded.
    ///
    /// # Errors
    /// A signer cannot be recorded: there is no key chain, or it cannot be written.
    pub fn remember(&self) -> Result<bool, KeyChainError> {
        let mut is_recorded = false;
        if self.policy.accepts_unverified() {
            return Ok(is_recorded);
        }
        for signer in &self.policy.signers {
            if let (TrustBasis::FirstUse, Some(digest)) = (signer.basis, &signer.key_digest) {
                let chain = self.chain.as_ref().ok_or(KeyChainError::NoHome)?;
                chain.remember_signer(&self.root, digest)?;
                is_recorded = true;
            }
        }
        Ok(is_recorded)
    }

    /// Keeps the certificate of [`Self::use_certificate`], if its signer is one that
    /// [`Self::remember`] records, now or earlier. Without it, the next download could not verify
    /// what this signer has signed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_named_certificate(&self) -> Result<(), KeyChainError> {
        let (Some(named), Some(chain)) = (&self.named, &self.chain) else { return Ok(()) };
        let digest = named.public_key_digest();
        let is_remembered = self.policy.signers.iter().any(|signer| {
            matches!(signer.basis, TrustBasis::FirstUse | TrustBasis::KnownKey)
                && signer.key_digest == Some(digest)
        });
        if is_remembered && !self.policy.accepts_unverified() {
            chain.keep_certificate(named)?;
        }
        Ok(())
    }
}

impl Trust for UserTrust {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.policy.decide(data, unix_time_s())
    }

    fn offer_certificate(&mut self, certificate: &[u8]) {
        self.policy.offer_certificate(certificate);
    }

    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        self.policy.on_fetched(wanted, packet);
    }

    fn accepted_keys(&self) -> Vec<[u8; 32]> {
        self.policy.accepted_keys()
    }
}

#[cfg(test)]
mod tests {
    use weir_security::trust::{Advice, Refusal};
    use weir_security::{DigestSigner, SignatureFormat, Signer, sign_data, sign_data_as};
    use weir_wire::Data;

    use super::*;
    use crate::KeyType;

    /// A user with a key chain, without a server of certificates.
    struct TestUser {
        dir: tempfile::TempDir,
    }

    impl TestUser {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap() }
        }

        fn chain(&self) -> KeyChain {
            KeyChain::at(self.dir.path().join("own"))
        }

        fn trust(&self, root: &str) -> UserTrust {
            UserTrust::new(root.parse().unwrap(), Some(self.chain()), &[] as &[&Path]).unwrap()
        }

        /// A signer of someone else. This user has its certificate.
        fn unknown_signer(&self, identity: &str) -> impl Signer + use<> {
            let signer = self.unknown(identity);
            self.chain().add_certificate(signer.certificate().unwrap()).unwrap();
            signer
        }

        fn unknown(&self, identity: &str) -> crate::KeySigner {
            let chain = KeyChain::at(self.dir.path().join("others"));
            let key = chain.generate(&identity.parse().unwrap(), KeyType::Ecdsa, None).unwrap();
            chain.signer(&key.name).unwrap()
        }
    }

    fn trust_reason(
        trust: &mut UserTrust,
        name: &str,
        signer: &dyn Signer,
    ) -> Result<TrustBasis, Refusal> {
        let wire = sign_data(&Data::new(name.parse().unwrap()), signer).unwrap();
        let data = DataView::decode(&wire).unwrap();
        loop {
            match trust.decide(&data) {
                TrustDecision::Accept(_) => return Ok(trust.policy.signers.last().unwrap().basis),
                TrustDecision::Fetch { wanted, .. } => trust.on_fetched(wanted, None),
                TrustDecision::Refuse(refusal) => return Err(refusal),
            }
        }
    }

    #[test]
    fn digest_is_no_signature() {
        let user = TestUser::new();
        let owner = user.unknown_signer("/owner");
        let mut trust = user.trust("/a");
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1/seg=0", &owner), Ok(TrustBasis::FirstUse));
        let refused = trust_reason(&mut trust, "/a/f/v=1/seg=1", &DigestSigner).unwrap_err();
        assert!(refused.reason.contains("is not signed, but other packets"), "{refused:?}");

        let mut trust = user.trust("/b");
        let refused = trust_reason(&mut trust, "/b/f", &DigestSigner).unwrap_err();
        assert_eq!(refused.advice, Some(Advice::AllowUnsigned));
        trust.policy().allow_unsigned();
        assert_eq!(trust_reason(&mut trust, "/b/f", &DigestSigner), Ok(TrustBasis::Unsigned));
    }

    #[test]
    fn anchor_disables_first_use_trust() {
        let user = TestUser::new();
        let site = KeyChain::at(user.dir.path().join("site"));
        let key = site.generate(&"/site".parse().unwrap(), KeyType::Ecdsa, None).unwrap();
        let anchor = site.signer(&key.name).unwrap();
        user.chain().add_anchor(anchor.certificate().unwrap()).unwrap();
        let stranger = user.unknown_signer("/stranger");
        let mut trust = user.trust("/site");
        for signer in [&stranger as &dyn Signer, &DigestSigner] {
            let refused = trust_reason(&mut trust, "/site/file", signer).unwrap_err();
            assert!(refused.reason.contains("trust anchor"), "{refused:?}");
        }
        assert_eq!(trust_reason(&mut trust, "/site/file", &anchor), Ok(TrustBasis::Anchor));
        let mut trust = user.trust("/elsewhere");
        assert_eq!(
            trust_reason(&mut trust, "/elsewhere/file", &stranger),
            Ok(TrustBasis::FirstUse)
        );
    }

    #[test]
    fn remembers_no_signer_of_unverified_download() {
        let user = TestUser::new();
        let owner = user.unknown_signer("/owner");
        let mut trust = user.trust("/a");
        trust.policy().accept_unverified();
        let stranger = user.unknown("/stranger");
        let group = KeyChain::at(user.dir.path().join("others"));
        let group = group.generate(&"/group".parse().unwrap(), KeyType::Hmac, None).unwrap();
        let group = KeyChain::at(user.dir.path().join("others")).signer(&group.name).unwrap();
        let unverified = Ok(TrustBasis::Unverified);
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1/seg=0", &stranger), unverified);
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1/seg=1", &group), unverified);
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1/seg=2", &owner), Ok(TrustBasis::FirstUse));
        trust.remember().unwrap();
        assert!(user.chain().known_signers().unwrap().is_empty());
    }

    /// `weir key trust` alone is enough to verify other names of the same signer.
    #[test]
    fn anchor_certificate_is_known_elsewhere() {
        let user = TestUser::new();
        let site = user.unknown("/site");
        user.chain().add_anchor(site.certificate().unwrap()).unwrap();
        let mut trust = user.trust("/elsewhere");
        assert_eq!(trust_reason(&mut trust, "/elsewhere/f", &site), Ok(TrustBasis::FirstUse));
        trust.remember().unwrap();
        let mut trust = user.trust("/elsewhere");
        assert_eq!(trust_reason(&mut trust, "/elsewhere/f", &site), Ok(TrustBasis::KnownKey));
    }

    #[test]
    fn reports_whether_signers_are_recorded() {
        let user = TestUser::new();
        let owner = user.unknown_signer("/owner");
        let mut trust = user.trust("/a");
        assert!(!trust.remember().unwrap(), "nothing was fetched");
        assert_eq!(trust_reason(&mut trust, "/a/f", &owner), Ok(TrustBasis::FirstUse));
        let shown = trust.policy.signers[0].to_string();
        assert!(!shown.contains("remember"), "only `remember` knows: {shown}");
        let path = user.chain().dir().join("known-signers.toml");
        std::fs::write(&path, "damaged").unwrap();
        assert!(trust.remember().is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(trust.remember().unwrap());
        trust.chain = None;
        assert!(matches!(trust.remember(), Err(KeyChainError::NoHome)));
    }

    /// Producers such as ndnputchunks do not serve their certificate.
    #[test]
    fn keeps_named_certificate_of_signer() {
        let user = TestUser::new();
        let certificate = |signer: &crate::KeySigner| signer.certificate().unwrap().clone();
        let (owner, other) = (user.unknown("/owner"), user.unknown("/other"));
        let mut trust = user.trust("/a");
        trust.use_certificate(certificate(&owner));
        assert_eq!(trust_reason(&mut trust, "/a/f", &owner), Ok(TrustBasis::FirstUse));
        assert!(trust.remember().unwrap());
        let folder = user.chain().dir().join("certificates");
        std::fs::write(&folder, "no folder").unwrap();
        trust.keep_named_certificate().expect_err("the signer is recorded all the same");
        std::fs::remove_file(&folder).unwrap();
        trust.keep_named_certificate().unwrap();
        let mut trust = user.trust("/a");
        assert_eq!(trust_reason(&mut trust, "/a/f", &owner), Ok(TrustBasis::KnownKey));
        // A certificate that has verified nothing is not kept.
        trust.use_certificate(certificate(&other));
        trust.keep_named_certificate().unwrap();
        let kept: Vec<_> = user.chain().certificates().unwrap();
        assert_eq!(kept, [certificate(&owner)]);
    }

    /// Its name is the choice of its signer.
    #[test]
    fn named_certificate_replaces_no_own_one() {
        let user = TestUser::new();
        let own = user.chain().generate(&"/me".parse().unwrap(), KeyType::Ecdsa, None).unwrap();
        let before = user.chain().certificates().unwrap();
        let forger = KeyChain::at(user.dir.path().join("others"));
        forger.generate(&own.name, KeyType::Ecdsa, None).unwrap();
        let forger = forger.signer(&own.name).unwrap();
        user.chain().keep_certificate(forger.certificate().unwrap()).unwrap();
        assert_eq!(user.chain().certificates().unwrap(), before);
    }

    #[test]
    fn shared_key_does_not_replace_owner() {
        let user = TestUser::new();
        let owner = user.unknown_signer("/owner");
        let key = user.chain().generate(&"/group".parse().unwrap(), KeyType::Hmac, None).unwrap();
        let group = user.chain().signer(&key.name).unwrap();
        let mut trust = user.trust("/a");
        assert_eq!(trust_reason(&mut trust, "/a/f", &owner), Ok(TrustBasis::FirstUse));
        trust.remember().unwrap();
        let mut trust = user.trust("/a");
        let refused = trust_reason(&mut trust, "/a/f", &group).unwrap_err();
        assert_eq!(refused.advice, Some(Advice::AskProducer));
        let mut trust = user.trust("/b");
        assert_eq!(trust_reason(&mut trust, "/b/f", &group), Ok(TrustBasis::SharedKey));
    }

    #[test]
    fn rejects_second_unknown_signer() {
        let user = TestUser::new();
        let (one, other) = (user.unknown_signer("/one"), user.unknown_signer("/other"));
        let mut trust = user.trust("/a");
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1", &one), Ok(TrustBasis::FirstUse));
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1/seg=0", &one), Ok(TrustBasis::FirstUse));
        let refused = trust_reason(&mut trust, "/a/f/v=1/seg=1", &other).unwrap_err();
        assert_eq!(refused.advice, Some(Advice::NameAnchors));
    }

    #[test]
    fn signer_of_one_object_does_not_bind_another() {
        let user = TestUser::new();
        let (one, other) = (user.unknown_signer("/one"), user.unknown_signer("/other"));
        let all = user.trust("/");
        let mut of_a = all.for_names_below("/a".parse().unwrap());
        let mut of_b = all.for_names_below("/b".parse().unwrap());
        assert_eq!(trust_reason(&mut of_a, "/a/v=1", &one), Ok(TrustBasis::FirstUse));
        assert_eq!(trust_reason(&mut of_b, "/b/v=1", &other), Ok(TrustBasis::FirstUse));
        assert!(trust_reason(&mut of_a, "/a/v=2", &other).is_err());
        for version in 2..20 {
            let name = format!("/a/v={version}");
            assert_eq!(trust_reason(&mut of_a, &name, &one), Ok(TrustBasis::FirstUse));
        }
        assert_eq!(of_a.policy.signers.len(), 1);
    }

    #[test]
    fn rejects_unknown_signer_next_to_user() {
        let user = TestUser::new();
        let key = user.chain().generate(&"/me".parse().unwrap(), KeyType::Ecdsa, None).unwrap();
        let (own, stranger) =
            (user.chain().signer(&key.name).unwrap(), user.unknown_signer("/one"));
        let mut trust = user.trust("/a");
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1", &own), Ok(TrustBasis::OwnKey));
        let refused = trust_reason(&mut trust, "/a/f/v=1/seg=0", &stranger).unwrap_err();
        assert_eq!(refused.advice, Some(Advice::NameAnchors));
        let mut trust = user.trust("/a");
        assert_eq!(trust_reason(&mut trust, "/a/f/v=1", &stranger), Ok(TrustBasis::FirstUse));
        assert!(trust_reason(&mut trust, "/a/f/v=1/seg=0", &own).is_err());
    }

    #[test]
    fn requests_certificate_then_metadata() {
        let user = TestUser::new();
        let signer = user.unknown("/unknown");
        let name: Name = "/a/f/54=%01/50=%00".parse().unwrap();
        let wire = sign_data(&Data::new(name), &signer).unwrap();
        let data = DataView::decode(&wire).unwrap();
        let mut wanted = Vec::new();
        let mut trust = user.trust("/a");
        let refusal = loop {
            match trust.decide(&data) {
                TrustDecision::Fetch { wanted: next, .. } => {
                    wanted.push(next.clone());
                    trust.on_fetched(next, None);
                }
                TrustDecision::Refuse(refusal) => break refusal,
                TrustDecision::Accept(_) => panic!("there is no certificate"),
            }
        };
        assert_eq!(refusal.advice, Some(Advice::ImportCertificate));
        assert!(matches!(wanted[0], NeededPacket::Certificate(_)), "{wanted:?}");
        assert_eq!(wanted[1..], [NeededPacket::MetadataOf("/a/f".parse().unwrap())]);

        let mut trust = user.trust("/a");
        let TrustDecision::Fetch { wanted, .. } = trust.decide(&data) else {
            panic!("it is not there")
        };
        trust.on_fetched(wanted, Some(signer.certificate().unwrap().wire()));
        assert!(matches!(trust.decide(&data), TrustDecision::Accept(_)));
    }

    /// A signature of hICN names its key only by a digest. The metadata of the object carry the
    /// certificate.
    #[test]
    fn own_key_of_hicn_signature_is_own() {
        let user = TestUser::new();
        let stranger = user.unknown("/one");
        let key = user.chain().generate(&"/me".parse().unwrap(), KeyType::Ecdsa, None).unwrap();
        let own = user.chain().signer(&key.name).unwrap();
        let own_certificate = user.chain().certificate_for(&key.name).unwrap().unwrap();
        let name: Name = format!("/32=hicn{}/seg=0", "/%00%01".repeat(8)).parse().unwrap();
        let stranger_certificate = stranger.certificate().unwrap();
        for (signer, certificate, basis) in [
            (&own, &own_certificate, TrustBasis::OwnKey),
            (&stranger, stranger_certificate, TrustBasis::FirstUse),
        ] {
            let data = Data::new(name.clone()).content("text");
            let wire = sign_data_as(SignatureFormat::Hicn, &data, signer, 1000).unwrap();
            let mut trust = user.trust("/a");
            trust.offer_certificate(certificate.wire());
            let decision = trust.decide(&DataView::decode(&wire).unwrap());
            assert!(matches!(decision, TrustDecision::Accept(_)));
            assert_eq!(trust.policy.signers.last().unwrap().basis, basis);
        }
    }
}
