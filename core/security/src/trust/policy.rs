//! Whether the signer of what is below one name is believed: trust anchors first, then the user's
//! own keys, then who signed the first time.
//!
//! A decision may need a certificate that is not there. It says which, the caller fetches it beside
//! whatever else it does, and asks again.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use weir_wire::{DataView, KeyLocatorView, Name, NameView};

use super::{Anchors, KnownSigners, SignerStatus, TrustError, check_validity};
use crate::certificate::Certificate;
use crate::digest::DigestVerifier;
use crate::sign::{SignatureType, Verifier, VerifierFactory, verify_data};

/// Certificates fetched for one object at most.
const FETCHES_MAX: usize = 8;
/// Times that one of them is fetched at most: what comes may be forged.
const TRIES_MAX: u32 = 3;

/// Why a signer is believed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TrustBasis {
    /// A trust anchor, or a chain of certificates to one.
    Anchor,
    /// A key of this user.
    OwnKey,
    /// The same key as when the name was first got.
    KnownKey,
    /// Nothing yet: it is the first time, and will be remembered.
    FirstUse,
    /// The key is shared by those who may sign and those who may read.
    SharedKey,
    /// Not at all: a digest shows that the packets are whole, not who made them.
    Unsigned,
}

/// Who signed what was got, and why that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedSigner {
    /// Name of the certificate or key; `None` if it is unsigned.
    pub name: Option<Name>,
    /// SHA-256 of the public key.
    pub key_digest: Option<[u8; 32]>,
    pub basis: TrustBasis,
}

impl fmt::Display for TrustedSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = &self.name else {
            return f.write_str("nobody: a digest shows that it is whole, not who made it");
        };
        write!(f, "{name} ")?;
        f.write_str(match self.basis {
            TrustBasis::Anchor => "(vouched for by a trust anchor)",
            TrustBasis::OwnKey => "(your own key)",
            TrustBasis::KnownKey => "(the same key as before)",
            TrustBasis::FirstUse => "(seen for the first time; remembered from now on)",
            TrustBasis::SharedKey => "(a shared secret key)",
            TrustBasis::Unsigned => "(not signed)",
        })
    }
}

/// Why a signer is not believed, and what the user may do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    /// What helps if it is as it should be.
    pub advice: Option<Advice>,
}

/// What a user may do about a signer that is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It may be forged: get it another way, and ask its producer.
    AskProducer,
    /// Say that unsigned content is as good.
    AllowUnsigned,
    /// Say which anchors count.
    NameAnchors,
    /// Take in a shared key.
    ImportKey,
    /// Ask the signer for a certificate and take it in.
    ImportCertificate,
}

/// What a user's keys and kept certificates say.
pub trait KeySource: Send {
    /// The certificate of the user's own key of this name, if there is one.
    fn own_certificate(&self, name: &Name) -> Option<Certificate>;

    /// What verifies packets of a shared key.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn shared_key(&self, name: &Name) -> Result<Box<dyn Verifier>, String>;

    /// The certificates that the user keeps.
    fn certificates(&self) -> Vec<Certificate>;
}

/// What is decided about a signer.
pub enum TrustDecision {
    /// It is believed: this verifies its packets.
    Accept(Arc<dyn Verifier>),
    /// It depends on a packet: the certificate of this name or right below it, or the metadata of
    /// the object of this name. The caller passes what it gets to [`TrustPolicy::on_fetched`], and
    /// asks again.
    Fetch {
        wanted: NeededPacket,
        /// What came before was not it: routers are to pass over what they have of it.
        must_be_fresh: bool,
    },
    /// It is not believed.
    Refuse(Refusal),
}

/// A packet that a decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeededPacket {
    /// A certificate, named by itself or by its key.
    Certificate(Name),
    /// Metadata of this object, which may hold its signer's certificate.
    MetadataOf(Name),
}

/// Decides about signers for whoever fetches.
pub trait Trust {
    /// Whether the signer of a packet is believed. Asked again when what the decision depends on
    /// has been fetched.
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision;

    /// A certificate that metadata holds.
    fn offer_certificate(&mut self, certificate: &[u8]) {
        let _ = certificate;
    }

    /// What came for [`Decision::Fetch`]; `None` if there is nothing to be had.
    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        let _ = (wanted, packet);
    }

    /// Says to the user why a signer is not believed.
    fn explain(&self, refusal: Refusal) -> String {
        refusal.reason
    }
}

/// Believes all that this verifies, and nothing else.
impl Trust for Arc<dyn Verifier> {
    fn decide(&mut self, _data: &DataView<'_>) -> TrustDecision {
        TrustDecision::Accept(self.clone())
    }
}

/// Why there is no verifier yet.
enum Unresolved {
    Fetch { wanted: NeededPacket, must_be_fresh: bool },
    Refuse(Refusal),
}

/// Something that has been fetched.
struct FetchResult {
    wanted: NeededPacket,
    /// How often it may be fetched again, should it turn out to be forged.
    tries_left: u32,
    refusal: Option<Refusal>,
}

fn refuse<T>(reason: String) -> Result<T, Unresolved> {
    Err(Unresolved::Refuse(Refusal { reason, advice: None }))
}

fn advise<T>(reason: String, advice: Advice) -> Result<T, Unresolved> {
    Err(Unresolved::Refuse(Refusal { reason, advice: Some(advice) }))
}

/// Decides about the signers of what is below one name.
pub struct TrustPolicy {
    anchors: Anchors,
    /// Only anchors count.
    needs_anchor: bool,
    allows_unsigned: bool,
    known: KnownSigners,
    keys: Option<Box<dyn KeySource>>,
    factory: &'static (dyn VerifierFactory + Sync),
    /// The user's own certificate that was looked for last, if there is such a one: each of many
    /// objects names the same signer.
    own: Option<(Name, Option<Certificate>)>,
    /// What verifies the packets of the key with that digest, the one that was believed last.
    verifier: Option<([u8; 32], Arc<dyn Verifier>)>,
    fetched: Vec<Certificate>,
    fetch_results: Vec<FetchResult>,
    /// Who signed what was got so far, each with the reason to believe it.
    pub signers: Vec<TrustedSigner>,
}

impl TrustPolicy {
    /// A policy. With `needs_anchor`, only anchors count. Without `keys`, the user has none.
    pub fn new(
        anchors: Anchors,
        needs_anchor: bool,
        known: KnownSigners,
        keys: Option<Box<dyn KeySource>>,
        factory: &'static (dyn VerifierFactory + Sync),
    ) -> Self {
        let (fetched, answered, signers) = (Vec::new(), Vec::new(), Vec::new());
        let allows_unsigned = false;
        Self {
            anchors,
            needs_anchor,
            allows_unsigned,
            known,
            keys,
            factory,
            own: None,
            verifier: None,
            fetched,
            fetch_results: answered,
            signers,
        }
    }

    /// Has content count that bears a digest and no signature, where no signature was seen.
    pub fn allow_unsigned(&mut self) {
        self.allows_unsigned = true;
    }

    /// Whether what `data` says of its signer is to be believed. `now_unix_s` is the time in
    /// seconds since the Unix epoch.
    pub fn decide(&mut self, data: &DataView<'_>, now_unix_s: i64) -> TrustDecision {
        let decided = match SignatureType(data.signature_info().signature_type) {
            SignatureType::DIGEST_SHA256 => self.decide_unsigned(data.name),
            SignatureType::HMAC_SHA256 => self.decide_shared_key(data),
            SignatureType::NULL => refuse(format!("{} has no signature at all", data.name)),
            _ => self.decide_public_key(data, now_unix_s),
        };
        match decided {
            Ok(verifier) => TrustDecision::Accept(verifier),
            Err(Unresolved::Fetch { wanted, must_be_fresh }) => {
                TrustDecision::Fetch { wanted, must_be_fresh }
            }
            Err(Unresolved::Refuse(refusal)) => TrustDecision::Refuse(refusal),
        }
    }

    /// A certificate that metadata holds. It says who signed, not that the signer is to be
    /// believed.
    pub fn offer_certificate(&mut self, certificate: &[u8]) {
        // That of one signer comes with each of many objects.
        if let Ok(certificate) = Certificate::decode(certificate)
            && self.fetched.len() < FETCHES_MAX
            && !self.fetched.contains(&certificate)
            && self.is_self_signature_valid(&certificate)
        {
            self.fetched.push(certificate);
        }
    }

    /// What came for [`Decision::Fetch`]: a Data, or `None` if there is none to be had. The
    /// certificate in metadata is [offered](Self::offer) before.
    pub fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        let wrong = match (&wanted, packet) {
            (NeededPacket::MetadataOf(_), _) => None,
            (NeededPacket::Certificate(name), None) => {
                Some(format!("the signer's certificate {name} cannot be had"))
            }
            (NeededPacket::Certificate(name), Some(packet)) => {
                self.add_fetched_certificate(name, packet).err()
            }
        };
        let advice = Some(Advice::ImportCertificate);
        let wrong = wrong.map(|reason| Refusal { reason, advice });
        let known = self.fetch_results.iter_mut().find(|one| one.wanted == wanted);
        let tries_left = match (&known, packet) {
            (_, None) => 0,
            (None, Some(_)) => TRIES_MAX - 1,
            (Some(known), Some(_)) => known.tries_left.saturating_sub(1),
        };
        let answered = FetchResult { wanted, tries_left, refusal: wrong };
        match known {
            Some(known) => *known = answered,
            None => self.fetch_results.push(answered),
        }
    }

    fn add_fetched_certificate(&mut self, name: &Name, packet: &[u8]) -> Result<(), String> {
        let certificate = Certificate::decode(packet)
            .map_err(|error| format!("what is served as {name} is no certificate: {error}"))?;
        let is_named = is_named_by(&certificate, &KeyLocatorView::Name(name.as_view()));
        if !is_named || !self.is_self_signature_valid(&certificate) {
            return Err(format!("the certificate served as {name} is forged or damaged"));
        }
        if !self.fetched.contains(&certificate) {
            self.fetched.push(certificate);
        }
        Ok(())
    }

    /// Whether a trust anchor is to sign what has this name: one that the user named for this, or
    /// one that is trusted for this very part of the name space.
    fn requires_anchor(&self, name: NameView<'_>) -> bool {
        let mut anchors = self.anchors.anchors();
        self.needs_anchor || anchors.any(|anchor| anchor.identity().is_prefix_of(name))
    }

    fn decide_unsigned(&mut self, name: NameView<'_>) -> Result<Arc<dyn Verifier>, Unresolved> {
        if self.requires_anchor(name) {
            return refuse(format!("{name} is not signed by anybody, let alone by a trust anchor"));
        }
        if let Some((prefix, digest)) = self.known.longest_known(name) {
            let reason = format!(
                "{name} is not signed, but {prefix} was when it was first got, by the key {}: \
                 somebody else may have made it",
                Hex(digest)
            );
            return advise(reason, Advice::AskProducer);
        }
        // Anybody on the way can make a digest: it must not stand in for a signature.
        if let Some(signer) =
            self.signers.iter().find(|signer| signer.basis != TrustBasis::Unsigned)
        {
            return refuse(format!(
                "{name} is not signed, but what belongs to it is, by {signer}: somebody else may \
                 have made it"
            ));
        }
        if !self.allows_unsigned {
            let reason = format!("{name} bears no signature: anybody on the way may have made it");
            return advise(reason, Advice::AllowUnsigned);
        }
        self.signers.push(TrustedSigner {
            name: None,
            key_digest: None,
            basis: TrustBasis::Unsigned,
        });
        Ok(Arc::new(DigestVerifier))
    }

    fn decide_shared_key(&mut self, data: &DataView<'_>) -> Result<Arc<dyn Verifier>, Unresolved> {
        let name = data.name;
        if self.requires_anchor(name) {
            return refuse(format!("{name} is signed with a shared key, not by a trust anchor"));
        }
        if let Some((prefix, _)) = self.known.longest_known(name) {
            let reason = format!(
                "{name} is signed with a shared key, but {prefix} was signed with a key of one \
                 owner when it was first got"
            );
            return advise(reason, Advice::AskProducer);
        }
        let Some(KeyLocatorView::Name(locator)) = data.signature_info().key_locator else {
            return refuse(format!("{name} does not say which shared key signed it"));
        };
        let key = locator.to_name();
        let Some(keys) = &self.keys else {
            return refuse("there is no key chain to hold the shared key".into());
        };
        match keys.shared_key(&key) {
            Ok(verifier) => {
                let ground = TrustBasis::SharedKey;
                self.signers.push(TrustedSigner {
                    name: Some(key),
                    key_digest: None,
                    basis: ground,
                });
                Ok(verifier.into())
            }
            Err(error) => {
                let reason = format!("it is signed with the shared key {key}: {error}");
                advise(reason, Advice::ImportKey)
            }
        }
    }

    fn decide_public_key(
        &mut self,
        data: &DataView<'_>,
        now_unix_s: i64,
    ) -> Result<Arc<dyn Verifier>, Unresolved> {
        let Some(locator) = data.signature_info().key_locator else {
            return refuse(format!(
                "{} does not say who signed it, so it cannot be verified",
                data.name
            ));
        };
        let mut refusal = None;
        if !self.anchors.is_empty() {
            match self.verify_by_anchor(data, now_unix_s) {
                Ok(certificate) => return self.accept(data, &certificate, TrustBasis::Anchor),
                Err(Unresolved::Refuse(refused)) if !self.needs_anchor => {
                    refusal = Some(refused.reason)
                }
                Err(open) => return Err(open),
            }
        }
        if let Some(certificate) = self.own_certificate(&locator) {
            return self.accept(data, &certificate, TrustBasis::OwnKey);
        }
        if let Some(reason) = refusal.filter(|_| self.requires_anchor(data.name)) {
            return advise(reason, Advice::AskProducer);
        }
        let certificate = self.certificate(data, &locator, now_unix_s)?;
        self.on_first_use(data, &certificate, now_unix_s)
    }

    fn own_certificate(&mut self, locator: &KeyLocatorView<'_>) -> Option<Certificate> {
        let (KeyLocatorView::Name(name), Some(keys)) = (locator, &self.keys) else { return None };
        let known = self.own.take().filter(|(known, _)| known.as_view() == *name);
        let (name, own) = known.unwrap_or_else(|| {
            let name = name.to_name();
            let own = keys.own_certificate(&name);
            (name, own)
        });
        self.own = Some((name, own.clone()));
        own
    }

    fn accept(
        &mut self,
        data: &DataView<'_>,
        certificate: &Certificate,
        ground: TrustBasis,
    ) -> Result<Arc<dyn Verifier>, Unresolved> {
        let name = certificate.name().to_name();
        let digest = certificate.public_key_digest();
        let known = self.verifier.take().filter(|(known, _)| *known == digest);
        let verifier = match known {
            Some((_, verifier)) => verifier,
            None => match self.factory.verifier_from_spki(certificate.public_key()) {
                Some(verifier) => verifier.into(),
                None => return refuse(format!("the key of {name} cannot be used")),
            },
        };
        self.verifier = Some((digest, verifier.clone()));
        self.refuse_second_signer(data.name, &digest, ground)?;
        // Noted though this packet may be forged in its name: a signer is asked about once.
        self.signers.push(TrustedSigner {
            name: Some(name),
            key_digest: Some(digest),
            basis: ground,
        });
        Ok(verifier)
    }

    /// A chain from a trust anchor to the signer of `data`.
    fn verify_by_anchor(
        &mut self,
        data: &DataView<'_>,
        now_unix_s: i64,
    ) -> Result<Certificate, Unresolved> {
        for _ in 0..FETCHES_MAX {
            let needed = match self.anchors.verify_data(data, now_unix_s) {
                Ok(certificate) => return Ok(certificate.clone()),
                Err(TrustError::CertificateNeeded(name)) => name,
                Err(error) => {
                    let reason = format!("no trust anchor vouches for it: {error}");
                    return advise(reason, Advice::AskProducer);
                }
            };
            self.accept_issued(&needed, 1, now_unix_s)?;
        }
        refuse("too many certificates lead to its signer".into())
    }

    /// Has the anchors accept the certificate `name`, and those of its issuers as far as needed.
    /// One that they do not accept may be forged: it is forgotten, and another may come.
    fn accept_issued(
        &mut self,
        name: &Name,
        depth: usize,
        now_unix_s: i64,
    ) -> Result<(), Unresolved> {
        loop {
            let certificate = self.find_or_fetch(name)?;
            let mut accepted = self.anchors.accept(certificate.clone(), self.factory, now_unix_s);
            let mut refused = None;
            if let Err(TrustError::CertificateNeeded(issuer)) = &accepted
                && depth < FETCHES_MAX
            {
                match self.accept_issued(issuer, depth + 1, now_unix_s) {
                    Err(Unresolved::Refuse(refusal)) => refused = Some(refusal),
                    Err(fetch) => return Err(fetch),
                    Ok(()) => {
                        let again = certificate.clone();
                        accepted = self.anchors.accept(again, self.factory, now_unix_s);
                    }
                }
            }
            let Err(error) = accepted else { return Ok(()) };
            let refusal = refused.unwrap_or_else(|| Refusal {
                reason: format!("no trust anchor vouches for {name}: {error}"),
                advice: None,
            });
            let before = self.fetched.len();
            self.fetched.retain(|known| *known != certificate);
            if self.fetched.len() == before {
                return Err(Unresolved::Refuse(refusal));
            }
            let wanted = NeededPacket::Certificate(name.clone());
            if let Some(answered) = self.fetch_results.iter_mut().find(|one| one.wanted == wanted) {
                answered.refusal = Some(refusal);
            }
        }
    }

    fn on_first_use(
        &mut self,
        data: &DataView<'_>,
        certificate: &Certificate,
        now_unix_s: i64,
    ) -> Result<Arc<dyn Verifier>, Unresolved> {
        let name = certificate.name();
        if let Err(error) = check_validity(certificate, now_unix_s) {
            return refuse(format!("its signer is not to be believed now: {error}"));
        }
        let digest = certificate.public_key_digest();
        let ground = match self.known.decide(data.name, &digest) {
            SignerStatus::Trusted => TrustBasis::KnownKey,
            SignerStatus::FirstUse => TrustBasis::FirstUse,
            SignerStatus::Changed { known } => {
                let reason = format!(
                    "{} is signed by another key than before: {} by {name}, not {}",
                    data.name,
                    Hex(&digest),
                    Hex(&known),
                );
                return advise(reason, Advice::AskProducer);
            }
        };
        self.accept(data, certificate, ground)
    }

    /// A key seen for the first time stands beside no other: what one owner signed is not taken
    /// from a stranger, and one key is remembered for all below the root.
    fn refuse_second_signer(
        &self,
        name: NameView<'_>,
        key_digest: &[u8; 32],
        ground: TrustBasis,
    ) -> Result<(), Unresolved> {
        let other = self.signers.iter().find(|signer| {
            let is_new = ground == TrustBasis::FirstUse || signer.basis == TrustBasis::FirstUse;
            let is_signed = signer.basis != TrustBasis::Unsigned;
            is_new && is_signed && signer.key_digest != Some(*key_digest)
        });
        let Some(first) = other else { return Ok(()) };
        let reason = format!(
            "{name} is signed by the key {}, but what belongs to it by {first}: one of the two may \
             be forged",
            Hex(key_digest),
        );
        advise(reason, Advice::NameAnchors)
    }

    /// The certificate that a locator names and whose key signed `data`: from the object's own
    /// metadata, or from wherever its name leads. Several may bear the name, for some may be
    /// forged; if none has signed `data`, that may be.
    fn certificate(
        &self,
        data: &DataView<'_>,
        locator: &KeyLocatorView<'_>,
        now_unix_s: i64,
    ) -> Result<Certificate, Unresolved> {
        let mut named = self.named_by(locator);
        let signed = named.iter().position(|certificate| {
            check_validity(certificate, now_unix_s).is_ok() && self.has_signed(certificate, data)
        });
        if let Some(at) = signed {
            return Ok(named.swap_remove(at));
        }
        let open = match locator {
            KeyLocatorView::Name(name) => self.fetch(&name.to_name()),
            KeyLocatorView::Digest(_) => Unresolved::Refuse(Refusal {
                reason: "its signer is named by the digest of a key only".to_string(),
                advice: None,
            }),
        };
        if let Unresolved::Fetch { .. } = open {
            return Err(open);
        }
        // A version asked for by name came without its metadata, which may hold the certificate.
        // The object's name is what precedes the version.
        let mut components = data.name.components();
        let version = components.position(|component| component.as_version().is_some());
        let metadata =
            version.map(|count| NeededPacket::MetadataOf(data.name.prefix(count).to_name()));
        match metadata.filter(|wanted| self.fetch_result_for(wanted).is_none()) {
            Some(wanted) => Err(Unresolved::Fetch { wanted, must_be_fresh: false }),
            None => named.into_iter().next().ok_or(open),
        }
    }

    fn fetch_result_for(&self, wanted: &NeededPacket) -> Option<&FetchResult> {
        self.fetch_results.iter().find(|answered| answered.wanted == *wanted)
    }

    /// The certificates that a locator names: those fetched, the last first, and those kept.
    fn named_by(&self, locator: &KeyLocatorView<'_>) -> Vec<Certificate> {
        let mut all: Vec<_> = self.fetched.iter().rev().cloned().collect();
        if let Some(keys) = &self.keys {
            all.extend(keys.certificates());
        }
        all.retain(|certificate| is_named_by(certificate, locator));
        all
    }

    fn find_or_fetch(&self, name: &Name) -> Result<Certificate, Unresolved> {
        let named = self.named_by(&KeyLocatorView::Name(name.as_view()));
        named.into_iter().next().ok_or_else(|| self.fetch(name))
    }

    /// Has a certificate fetched, for the first time or again, as often as that is of use.
    fn fetch(&self, name: &Name) -> Unresolved {
        let wanted = NeededPacket::Certificate(name.clone());
        let must_be_fresh = match self.fetch_result_for(&wanted) {
            Some(FetchResult { tries_left: 0, refusal: wrong, .. }) => {
                return Unresolved::Refuse(wrong.clone().unwrap_or_else(|| Refusal {
                    reason: format!("the certificate {name} is not that of its signer"),
                    advice: Some(Advice::ImportCertificate),
                }));
            }
            None if self.fetch_results.len() >= FETCHES_MAX => {
                let reason = "too many certificates lead to its signer".to_string();
                return Unresolved::Refuse(Refusal { reason, advice: None });
            }
            answered => answered.is_some(),
        };
        Unresolved::Fetch { wanted, must_be_fresh }
    }

    fn has_signed(&self, certificate: &Certificate, data: &DataView<'_>) -> bool {
        let verifier = self.factory.verifier_from_spki(certificate.public_key());
        verifier.is_some_and(|verifier| verify_data(data, &*verifier).is_ok())
    }

    /// A certificate that its own key signed must bear that signature. Others' signatures matter to
    /// anchors only.
    fn is_self_signature_valid(&self, certificate: &Certificate) -> bool {
        !certificate.is_self_issued() || self.has_signed(certificate, &certificate.data())
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

/// Octets in hexadecimal.
struct Hex<'a>(&'a [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}
