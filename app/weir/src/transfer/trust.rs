//! Whose signature is believed: trust anchors, the user's own keys, and who signed the first time.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use weir_crypto::keychain::{read_certificate, unix_time_s};
use weir_crypto::{KeyChain, Provider, verifier_from_certificate};
use weir_security::trust::{Anchors, KnownSigners, SignerStatus, TrustError};
use weir_security::{Certificate, DigestVerifier, SignatureType, Verifier, verify_data};
use weir_socket::Client;
use weir_transport::{METADATA_KEYWORD, Metadata};
use weir_wire::{DataView, Interest, KeyLocatorView, Name, NameView};

/// Certificates fetched for one object at most.
const FETCHES_MAX: usize = 8;
/// How long a certificate is waited for, twice.
const CERTIFICATE_LIFETIME_MS: u64 = 2000;

/// Why a signer is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// A trust anchor, or a chain of certificates to one.
    Anchor,
    /// A key of this user.
    Own,
    /// The same key as when the name was first got.
    Known,
    /// Nothing yet: it is the first time, and will be remembered.
    FirstUse,
    /// The key is shared by those who may sign and those who may read.
    Shared,
    /// Not at all: a digest shows that the packets are whole, not who made them.
    Unsigned,
}

/// Who signed what was got.
#[derive(Clone, Debug)]
pub(crate) struct Signer {
    /// Name of the certificate or key.
    pub(crate) name: Option<Name>,
    /// SHA-256 of the public key.
    pub(crate) key_digest: Option<[u8; 32]>,
    pub(crate) ground: Ground,
}

impl Signer {
    /// For people.
    pub(crate) fn describe(&self) -> String {
        let name = self.name.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string);
        match self.ground {
            Ground::Anchor => format!("{name} (vouched for by a trust anchor)"),
            Ground::Own => format!("{name} (your own key)"),
            Ground::Known => format!("{name} (the same key as before)"),
            Ground::FirstUse => format!("{name} (seen for the first time; remembered from now on)"),
            Ground::Shared => format!("{name} (a shared secret key)"),
            Ground::Unsigned => {
                "nobody: a digest shows that it is whole, not who made it".to_owned()
            }
        }
    }

    /// For programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name.as_ref().map(ToString::to_string),
            "key_sha256": self.key_digest.map(hex::encode),
            "trust": match self.ground {
                Ground::Anchor => "anchor",
                Ground::Own => "own",
                Ground::Known => "known",
                Ground::FirstUse => "first-use",
                Ground::Shared => "shared",
                Ground::Unsigned => "none",
            },
        })
    }
}

/// Decides about the signers of what is below one name.
pub(crate) struct Trust {
    /// What was asked for: signers are remembered for all below it.
    root: Name,
    chain: Option<KeyChain>,
    anchors: Anchors,
    /// Only anchors count.
    needs_anchor: bool,
    known: KnownSigners,
    fetched: Vec<Certificate>,
    /// Who signed what was got so far, each with the reason to believe it.
    pub(crate) signers: Vec<Signer>,
}

impl Trust {
    /// Reads what the user trusts. With `anchor_files` nothing else counts.
    pub(crate) fn new(
        root: Name,
        chain: anyhow::Result<KeyChain>,
        anchor_files: &[impl AsRef<Path>],
    ) -> anyhow::Result<Self> {
        // Without a home there is nothing to know and nothing to remember.
        let chain = chain.ok();
        let (mut anchors, mut known) = (Anchors::new(), KnownSigners::new());
        if let Some(chain) = &chain {
            anchors = chain.anchors()?;
            known = chain.known_signers()?;
        }
        if !anchor_files.is_empty() {
            anchors = Anchors::new();
        }
        for file in anchor_files {
            let certificate = read_certificate(file.as_ref())?;
            anchors.add(certificate, &Provider)?;
        }
        let needs_anchor = !anchor_files.is_empty();
        Ok(Self {
            root,
            chain,
            anchors,
            needs_anchor,
            known,
            fetched: Vec::new(),
            signers: Vec::new(),
        })
    }

    /// What verifies `data`, if its signer is believed.
    pub(crate) fn verifier(
        &mut self,
        client: &mut Client,
        data: &DataView<'_>,
    ) -> Result<Arc<dyn Verifier>, String> {
        let signature_type = SignatureType(data.signature_info.signature_type);
        match signature_type {
            SignatureType::DIGEST_SHA256 => self.unsigned(data.name),
            SignatureType::HMAC_SHA256 => self.shared(data),
            SignatureType::NULL => Err(format!("{} has no signature at all", data.name)),
            _ => self.public_key(client, data),
        }
    }

    /// Remembers who signed, now that all of it has been verified.
    pub(crate) fn remember(&self) -> anyhow::Result<()> {
        let Some(chain) = &self.chain else { return Ok(()) };
        for signer in &self.signers {
            if let (Ground::FirstUse, Some(digest)) = (&signer.ground, &signer.key_digest) {
                chain.remember_signer(&self.root, digest)?;
            }
        }
        Ok(())
    }

    /// Whether a trust anchor is to sign what has this name: one that was named on the command
    /// line, or one that
    /// the user trusts for this very part of the name space.
    fn is_anchored(&self, name: NameView<'_>) -> bool {
        let mut anchors = self.anchors.anchors();
        self.needs_anchor || anchors.any(|anchor| anchor.identity().is_prefix_of(name))
    }

    fn unsigned(&mut self, name: NameView<'_>) -> Result<Arc<dyn Verifier>, String> {
        if self.is_anchored(name) {
            return Err(format!("{name} is not signed by anybody, let alone by a trust anchor"));
        }
        if let Some((prefix, digest)) = self.known.known_for(name) {
            return Err(format!(
                "{name} is not signed, but {prefix} was when it was first got, by the key {}: \
                 somebody else may have made it. If that is as it should be, run \
                 `weir key trust forget {prefix}`",
                hex::encode(digest)
            ));
        }
        // Anybody on the way can make a digest: it must not stand in for a signature.
        if let Some(signer) = self.signers.iter().find(|signer| signer.ground != Ground::Unsigned) {
            return Err(format!(
                "{name} is not signed, but what belongs to it is, by {}: somebody else may have \
                 made it",
                signer.describe()
            ));
        }
        self.signers.push(Signer { name: None, key_digest: None, ground: Ground::Unsigned });
        Ok(Arc::new(DigestVerifier))
    }

    fn shared(&mut self, data: &DataView<'_>) -> Result<Arc<dyn Verifier>, String> {
        if self.is_anchored(data.name) {
            return Err(format!(
                "{} is signed with a shared key, not by a trust anchor",
                data.name
            ));
        }
        if let Some((prefix, _)) = self.known.known_for(data.name) {
            return Err(format!(
                "{} is signed with a shared key, but {prefix} was signed with a key of one owner \
                 when it was first got. If that is as it should be, run \
                 `weir key trust forget {prefix}`",
                data.name
            ));
        }
        let Some(KeyLocatorView::Name(locator)) = data.signature_info.key_locator else {
            return Err(format!("{} does not say which shared key signed it", data.name));
        };
        let name = locator.to_name();
        let chain = self.chain.as_ref().ok_or("there is no key chain to hold the shared key")?;
        let verifier = chain.hmac_verifier(&name).map_err(|error| {
            format!("it is signed with the shared key {name}: {error}; `weir key import` it first")
        })?;
        self.signers.push(Signer { name: Some(name), key_digest: None, ground: Ground::Shared });
        Ok(Arc::new(verifier))
    }

    fn public_key(
        &mut self,
        client: &mut Client,
        data: &DataView<'_>,
    ) -> Result<Arc<dyn Verifier>, String> {
        let locator = data.signature_info.key_locator.ok_or_else(|| {
            format!("{} does not say who signed it, so it cannot be verified", data.name)
        })?;
        self.take_embedded(data);
        let mut refusal = None;
        if !self.anchors.is_empty() {
            match self.by_anchor(client, data) {
                Ok(certificate) => return self.accept(&certificate, Ground::Anchor),
                Err(reason) if self.needs_anchor => return Err(reason),
                Err(reason) => refusal = Some(reason),
            }
        }
        if let Some(certificate) = self.own(&locator) {
            return self.accept(&certificate, Ground::Own);
        }
        if let Some(reason) = refusal.filter(|_| self.is_anchored(data.name)) {
            return Err(format!(
                "{reason}. If you trust its signer too, run `weir key trust FILE` with its \
                 certificate"
            ));
        }
        let certificate = self.certificate(client, data, &locator)?;
        self.on_first_use(data, &certificate)
    }

    fn accept(
        &mut self,
        certificate: &Certificate,
        ground: Ground,
    ) -> Result<Arc<dyn Verifier>, String> {
        let name = certificate.name().to_name();
        let verifier = verifier_from_certificate(certificate)
            .map_err(|error| format!("the key of {name} cannot be used: {error}"))?;
        let key_digest = Some(certificate.public_key_digest());
        self.signers.push(Signer { name: Some(name), key_digest, ground });
        Ok(verifier.into())
    }

    /// A chain from a trust anchor to the signer of `data`.
    fn by_anchor(
        &mut self,
        client: &mut Client,
        data: &DataView<'_>,
    ) -> Result<Certificate, String> {
        let now = unix_time_s();
        for _ in 0..FETCHES_MAX {
            let needed = match self.anchors.verify_data(data, now) {
                Ok(certificate) => return Ok(certificate.clone()),
                Err(TrustError::CertificateNeeded(name)) => name,
                Err(error) => return Err(format!("no trust anchor vouches for it: {error}")),
            };
            self.accept_issued(client, needed, now)?;
        }
        Err("too many certificates lead to its signer".into())
    }

    /// Fetches the certificate `name`, and those of its issuers as far as needed, until an anchor
    /// vouches for it.
    fn accept_issued(&mut self, client: &mut Client, name: Name, now: i64) -> Result<(), String> {
        let mut chain = vec![self.fetch(client, &name)?];
        while let Some(certificate) = chain.last().cloned() {
            match self.anchors.accept(certificate, &Provider, now) {
                Ok(()) => {
                    chain.pop();
                }
                Err(TrustError::CertificateNeeded(issuer)) if chain.len() < FETCHES_MAX => {
                    chain.push(self.fetch(client, &issuer)?);
                }
                Err(error) => return Err(format!("no trust anchor vouches for {name}: {error}")),
            }
        }
        Ok(())
    }

    fn own(&self, locator: &KeyLocatorView<'_>) -> Option<Certificate> {
        let KeyLocatorView::Name(name) = locator else { return None };
        let chain = self.chain.as_ref()?;
        let key = chain.find(&name.to_name()).ok()?;
        chain.certificate_for(&key.name).ok().flatten()
    }

    fn on_first_use(
        &mut self,
        data: &DataView<'_>,
        certificate: &Certificate,
    ) -> Result<Arc<dyn Verifier>, String> {
        let name = certificate.name();
        if !certificate.validity().contains(unix_time_s()) {
            return Err(format!("the signer's certificate {name} is expired or not yet valid"));
        }
        let digest = certificate.public_key_digest();
        let ground = match self.known.decide(data.name, &digest) {
            SignerStatus::Trusted => Ground::Known,
            SignerStatus::FirstUse => {
                self.refuse_second_stranger(data.name, &digest)?;
                Ground::FirstUse
            }
            SignerStatus::Changed { known } => {
                let (prefix, _) = self.known.known_for(data.name).expect("it is known");
                return Err(format!(
                    "{} is signed by another key than before: {} by {name}, not {}. It may be \
                     forged. If the producer told you of a new key, run \
                     `weir key trust forget {prefix}` and get it again",
                    data.name,
                    hex::encode(digest),
                    hex::encode(known),
                ));
            }
        };
        self.accept(certificate, ground)
    }

    /// One key is remembered for all below the root, so that a second one would be refused the next
    /// time.
    fn refuse_second_stranger(
        &self,
        name: NameView<'_>,
        key_digest: &[u8; 32],
    ) -> Result<(), String> {
        let first = self.signers.iter().find(|signer| {
            signer.ground == Ground::FirstUse && signer.key_digest != Some(*key_digest)
        });
        first.map_or(Ok(()), |first| {
            Err(format!(
                "{name} is signed by the key {}, but what belongs to it by {}: one of the two may \
                 be forged. Say whom you trust with --trust-anchor",
                hex::encode(key_digest),
                first.describe()
            ))
        })
    }

    /// The certificate that a locator names: from the object's own metadata, or from wherever its
    /// name leads.
    fn certificate(
        &mut self,
        client: &mut Client,
        data: &DataView<'_>,
        locator: &KeyLocatorView<'_>,
    ) -> Result<Certificate, String> {
        if let Some(certificate) = self.find(locator) {
            return Ok(certificate);
        }
        let mut reason = String::from("its signer is named by the digest of a key only");
        if let KeyLocatorView::Name(name) = locator {
            match self.fetch(client, &name.to_name()) {
                Ok(certificate) => return Ok(certificate),
                Err(error) => reason = error,
            }
        }
        // A version asked for by name came without its metadata, which may hold the certificate.
        if let Some(metadata) = self.fetch_metadata(client, data.name)
            && let Ok(view) = DataView::decode(&metadata)
        {
            self.take_embedded(&view);
        }
        self.find(locator).ok_or(reason)
    }

    fn find(&self, locator: &KeyLocatorView<'_>) -> Option<Certificate> {
        let kept = self.chain.as_ref().and_then(|chain| chain.certificates().ok());
        let mut all = self.fetched.iter().chain(kept.iter().flatten());
        all.find(|certificate| is_named_by(certificate, locator)).cloned()
    }

    /// Metadata made by `weir put` holds the signer's certificate.
    fn take_embedded(&mut self, data: &DataView<'_>) {
        let is_metadata = data.name.components().any(|part| part.is_keyword(METADATA_KEYWORD));
        if !is_metadata {
            return;
        }
        let embedded = Metadata::decode(data.content).ok().and_then(|found| found.certificate);
        if let Some(certificate) = embedded.and_then(|wire| Certificate::decode(&wire).ok())
            && certificate_is_sound(&certificate)
            && self.fetched.len() < FETCHES_MAX
        {
            self.fetched.push(certificate);
        }
    }

    fn fetch(&mut self, client: &mut Client, name: &Name) -> Result<Certificate, String> {
        let locator = KeyLocatorView::Name(name.as_view());
        if let Some(certificate) = self.find(&locator) {
            return Ok(certificate);
        }
        let packet = express(client, name, false).ok_or_else(|| {
            format!(
                "the signer's certificate {name} cannot be had; if you know the signer, ask \
                     for it and take it in with `weir key import FILE`"
            )
        })?;
        let certificate = Certificate::decode(&packet)
            .map_err(|error| format!("what is served as {name} is no certificate: {error}"))?;
        if !is_named_by(&certificate, &locator) || !certificate_is_sound(&certificate) {
            return Err(format!("the certificate served as {name} is forged or damaged"));
        }
        self.fetched.push(certificate.clone());
        Ok(certificate)
    }

    fn fetch_metadata(&self, client: &mut Client, name: NameView<'_>) -> Option<Vec<u8>> {
        // The object's name is what precedes the version.
        let count = name.components().position(|component| component.as_version().is_some())?;
        let mut metadata = name.prefix(count).to_name();
        metadata.append_keyword(METADATA_KEYWORD);
        express(client, &metadata, false)
    }
}

fn is_named_by(certificate: &Certificate, locator: &KeyLocatorView<'_>) -> bool {
    match locator {
        KeyLocatorView::Name(name) => {
            name.is_prefix_of(certificate.name()) || certificate.key_name().is_prefix_of(*name)
        }
        KeyLocatorView::Digest(digest) => certificate.public_key_digest() == **digest,
    }
}

/// A certificate that its own key signed must bear that signature. Others' signatures matter to
/// anchors only.
fn certificate_is_sound(certificate: &Certificate) -> bool {
    if !certificate.is_self_issued() {
        return true;
    }
    verifier_from_certificate(certificate)
        .is_ok_and(|verifier| verify_data(&certificate.data(), &*verifier).is_ok())
}

fn express(client: &mut Client, name: &Name, must_be_fresh: bool) -> Option<Vec<u8>> {
    for _ in 0..2 {
        let nonce = client.random() as u32;
        let interest = Interest::new(name.clone())
            .can_be_prefix(true)
            .must_be_fresh(must_be_fresh)
            .nonce(nonce)
            .lifetime_ms(CERTIFICATE_LIFETIME_MS);
        if let Ok(answer) = client.express(&interest.encode()) {
            return Some(answer.packet.to_vec());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use weir_crypto::KeyType;
    use weir_face::FaceUri;
    use weir_security::{DigestSigner, Signer, sign_data};
    use weir_wire::Data;

    use super::*;

    /// A user with a key chain, and a router that never answers.
    struct User {
        dir: tempfile::TempDir,
        _router: std::os::unix::net::UnixListener,
        client: Client,
    }

    impl User {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("router.sock");
            let router = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            let client = Client::connect(&FaceUri::Unix(socket)).unwrap();
            Self { dir, _router: router, client }
        }

        fn chain(&self) -> KeyChain {
            KeyChain::at(self.dir.path().join("own"))
        }

        fn trust(&self, root: &str) -> Trust {
            Trust::new(root.parse().unwrap(), Ok(self.chain()), &[] as &[&Path]).unwrap()
        }

        /// The signer of somebody else, whose certificate this user has.
        fn stranger(&self, identity: &str) -> impl Signer + use<> {
            let chain = KeyChain::at(self.dir.path().join("others"));
            let key = chain.generate(&identity.parse().unwrap(), KeyType::Ecdsa, None).unwrap();
            let signer = chain.signer(&key.name).unwrap();
            self.chain().add_certificate(signer.certificate().unwrap()).unwrap();
            signer
        }

        fn ground(
            &mut self,
            trust: &mut Trust,
            name: &str,
            signer: &dyn Signer,
        ) -> Result<Ground, String> {
            let wire = sign_data(&Data::new(name.parse().unwrap()), signer).unwrap();
            let data = DataView::decode(&wire).unwrap();
            trust.verifier(&mut self.client, &data)?;
            Ok(trust.signers.last().unwrap().ground.clone())
        }
    }

    #[test]
    fn a_digest_does_not_stand_in_for_a_signature() {
        let mut user = User::new();
        let owner = user.stranger("/owner");
        let mut trust = user.trust("/a");
        assert_eq!(user.ground(&mut trust, "/a/f/v=1/seg=0", &owner), Ok(Ground::FirstUse));
        let refused = user.ground(&mut trust, "/a/f/v=1/seg=1", &DigestSigner).unwrap_err();
        assert!(refused.contains("is not signed, but what belongs to it is"), "{refused}");

        let mut trust = user.trust("/b");
        assert_eq!(user.ground(&mut trust, "/b/f", &DigestSigner), Ok(Ground::Unsigned));
    }

    #[test]
    fn where_an_anchor_signs_nobody_else_is_believed_at_first_use() {
        let mut user = User::new();
        let site = KeyChain::at(user.dir.path().join("site"));
        let key = site.generate(&"/site".parse().unwrap(), KeyType::Ecdsa, None).unwrap();
        let anchor = site.signer(&key.name).unwrap();
        user.chain().add_anchor(anchor.certificate().unwrap()).unwrap();
        let stranger = user.stranger("/stranger");
        let mut trust = user.trust("/site");
        for signer in [&stranger as &dyn Signer, &DigestSigner] {
            let refused = user.ground(&mut trust, "/site/file", signer).unwrap_err();
            assert!(refused.contains("trust anchor"), "{refused}");
        }
        assert_eq!(user.ground(&mut trust, "/site/file", &anchor), Ok(Ground::Anchor));
        let mut trust = user.trust("/elsewhere");
        assert_eq!(user.ground(&mut trust, "/elsewhere/file", &stranger), Ok(Ground::FirstUse));
    }

    #[test]
    fn what_one_owner_signed_is_not_taken_from_the_holders_of_a_shared_key() {
        let mut user = User::new();
        let owner = user.stranger("/owner");
        let key = user.chain().generate(&"/group".parse().unwrap(), KeyType::Hmac, None).unwrap();
        let group = user.chain().signer(&key.name).unwrap();
        let mut trust = user.trust("/a");
        assert_eq!(user.ground(&mut trust, "/a/f", &owner), Ok(Ground::FirstUse));
        trust.remember().unwrap();
        let mut trust = user.trust("/a");
        let refused = user.ground(&mut trust, "/a/f", &group).unwrap_err();
        assert!(refused.contains("weir key trust forget /a"), "{refused}");
        let mut trust = user.trust("/b");
        assert_eq!(user.ground(&mut trust, "/b/f", &group), Ok(Ground::Shared));
    }

    #[test]
    fn two_strangers_do_not_sign_one_object() {
        let mut user = User::new();
        let (one, other) = (user.stranger("/one"), user.stranger("/other"));
        let mut trust = user.trust("/a");
        assert_eq!(user.ground(&mut trust, "/a/f/v=1", &one), Ok(Ground::FirstUse));
        assert_eq!(user.ground(&mut trust, "/a/f/v=1/seg=0", &one), Ok(Ground::FirstUse));
        let refused = user.ground(&mut trust, "/a/f/v=1/seg=1", &other).unwrap_err();
        assert!(refused.contains("--trust-anchor"), "{refused}");
    }
}
