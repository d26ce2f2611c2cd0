//! Decides whether the signer of names below a prefix is trusted: first by trust anchors, then by
//! the user's own keys, then by the key seen first.
//!
//! A decision may need a certificate that is missing. It then names this certificate. The caller
//! continues with other work, fetches the certificate, and calls again.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use weir_hicn::NativeData;
use weir_wire::{DataView, KeyLocatorView, Name, NameView};

use super::{Anchors, KnownSigners, SignerStatus, TrustError, check_validity};
use crate::certificate::Certificate;
use crate::digest::{DigestVerifier, UnsignedHicnVerifier, sha256};
use crate::sign::{
    SignatureType, Verifier, VerifierFactory, VerifyError, verifier_type, verify_data,
};

/// Maximum number of unverified signers that are reported.
const UNVERIFIED_MAX: usize = 8;
/// Maximum number of certificates fetched for one object.
const FETCHES_MAX: usize = 8;
/// Maximum number of times that a certificate is fetched, because an answer may be forged.
const TRIES_MAX: u32 = 3;

/// Why a signer is trusted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TrustBasis {
    /// A trust anchor, or a chain of certificates to one.
    Anchor,
    /// A key of this user.
    OwnKey,
    /// The same key as when the name was first fetched.
    KnownKey,
    /// This key is seen for the first time.
    FirstUse,
    /// A secret key shared by those who may sign and those who may read.
    SharedKey,
    /// The key that the user has named for hICN producers, whose packets do not name a key.
    HicnKey,
    /// No signature: a digest shows that the packets are complete, but not who made them.
    Unsigned,
    /// The signature was not verified, and the user accepts that.
    Unverified,
}

impl TrustBasis {
    /// Whether a signature by a trusted key shows who made the packets.
    pub const fn is_verified(self) -> bool {
        !matches!(self, Self::Unsigned | Self::Unverified)
    }
}

/// The signer of fetched packets, and why it is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedSigner {
    /// The name of the certificate or key; `None` without a signature.
    pub name: Option<Name>,
    /// SHA-256 of the public key.
    pub key_digest: Option<[u8; 32]>,
    pub basis: TrustBasis,
}

impl fmt::Display for TrustedSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.basis == TrustBasis::HicnKey {
            return f.write_str("the key given for hICN producers");
        }
        let Some(name) = &self.name else {
            if self.basis == TrustBasis::Unverified {
                return f.write_str("an unknown key (not verified)");
            }
            return f.write_str("no one: a digest proves that it is complete, but not who made it");
        };
        write!(f, "{name} ")?;
        f.write_str(match self.basis {
            TrustBasis::Anchor => "(trusted through a trust anchor)",
            TrustBasis::OwnKey => "(your own key)",
            TrustBasis::KnownKey => "(the same key as before)",
            TrustBasis::FirstUse => "(seen for the first time)",
            TrustBasis::SharedKey => "(a shared secret key)",
            TrustBasis::HicnKey => "(the key given for hICN producers)",
            TrustBasis::Unsigned => "(not signed)",
            TrustBasis::Unverified => "(not verified)",
        })
    }
}

/// Why a signer is not trusted, and what the user can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    /// What the user can do if the signer is legitimate.
    pub advice: Option<Advice>,
}

/// What a user can do about an untrusted signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The content may be forged: get it another way, and ask its producer.
    AskProducer,
    /// Allow unsigned content.
    AllowUnsigned,
    /// Name the trust anchors to use.
    NameAnchors,
    /// Import a shared key.
    ImportKey,
    /// Ask the signer for a certificate and import it.
    ImportCertificate,
    /// Name the key of the hICN producer.
    NameHicnKey,
}

/// The keys of a user, and the certificates that the user keeps.
pub trait KeySource: Send + Sync {
    /// The certificate of the user's own key with this name, if there is one.
    fn own_certificate(&self, name: &Name) -> Option<Certificate>;

    /// The verifier of a shared key.
    ///
    /// # Errors
    /// A description of the reason if there is none.
    fn shared_key(&self, name: &Name) -> Result<Box<dyn Verifier>, String>;

    /// The certificates that the user keeps.
    fn certificates(&self) -> Vec<Certificate>;
}

/// The decision about a signer.
pub enum TrustDecision {
    /// The signer is trusted. This verifies its packets.
    Accept(Arc<dyn Verifier>),
    /// The decision depends on a packet: a certificate with this name or directly below it, or the
    /// metadata of the object with this name. The caller fetches the packet, passes it to
    /// [`TrustPolicy::on_fetched`], and calls again.
    Fetch {
        wanted: NeededPacket,
        /// An earlier answer was refused, so routers must not answer from their stores.
        must_be_fresh: bool,
    },
    /// The signer is not trusted.
    Refuse(Refusal),
}

/// A packet that a decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeededPacket {
    /// A certificate, given by its own name or by that of its key.
    Certificate(Name),
    /// Metadata of this object, which may contain its signer's certificate.
    MetadataOf(Name),
}

/// Decides about signers on behalf of a fetcher.
pub trait Trust {
    /// Decides whether the signer of a packet is trusted. Call it again when the needed packet has
    /// been fetched.
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision;

    /// Adds a certificate from metadata.
    fn offer_certificate(&mut self, certificate: &[u8]) {
        let _ = certificate;
    }

    /// Passes the answer for [`TrustDecision::Fetch`]; `None` if none could be fetched.
    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        let _ = (wanted, packet);
    }

    /// Identifies each key whose packets were accepted so far, for all objects of a fetch, if that
    /// is known. An interrupted download continues only under the trust that it began with.
    fn accepted_keys(&self) -> Vec<[u8; 32]> {
        Vec::new()
    }

    /// Explains to the user why a signer is not trusted.
    fn explain(&self, refusal: Refusal) -> String {
        refusal.reason
    }
}

/// Trusts everything that this verifier accepts, and nothing else.
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

/// A packet that was fetched.
struct FetchResult {
    wanted: NeededPacket,
    /// How many times it may be fetched again if it proves to be forged.
    tries_left: u32,
    refusal: Option<Refusal>,
}

fn refuse<T>(reason: String) -> Result<T, Unresolved> {
    Err(Unresolved::Refuse(Refusal { reason, advice: None }))
}

fn advise<T>(reason: String, advice: Advice) -> Result<T, Unresolved> {
    Err(Unresolved::Refuse(Refusal { reason, advice: Some(advice) }))
}

/// Decides about the signers of names below a prefix.
pub struct TrustPolicy {
    anchors: Anchors,
    /// Only anchors are trusted.
    needs_anchor: bool,
    allows_unsigned: bool,
    accepts_unverified: bool,
    /// With the digest that identifies it.
    hicn_key: Option<(Arc<dyn Verifier>, [u8; 32])>,
    known: KnownSigners,
    keys: Option<Arc<dyn KeySource>>,
    factory: &'static (dyn VerifierFactory + Sync),
    /// The last lookup of a user's own certificate. The signers of many objects have the same name.
    own: Option<(Name, Option<Certificate>)>,
    /// The last trusted verifier, with the digest of its key.
    verifier: Option<([u8; 32], Arc<dyn Verifier>)>,
    fetched: Vec<Certificate>,
    fetch_results: Vec<FetchResult>,
    /// The signers of everything fetched so far, each with the reason to trust it.
    pub signers: Vec<TrustedSigner>,
}

impl TrustPolicy {
    /// Creates a policy. With `needs_anchor`, only anchors are trusted. Without `keys`, the user
    /// has no keys.
    pub fn new(
        anchors: Anchors,
        needs_anchor: bool,
        known: KnownSigners,
        keys: Option<Arc<dyn KeySource>>,
        factory: &'static (dyn VerifierFactory + Sync),
    ) -> Self {
        let (fetched, answered, signers) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            anchors,
            needs_anchor,
            allows_unsigned: false,
            accepts_unverified: false,
            hicn_key: None,
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

    /// A policy with the same settings, for other names: it has not decided about a signer yet.
    pub fn restarted(&self) -> Self {
        Self {
            anchors: self.anchors.clone(),
            needs_anchor: self.needs_anchor,
            allows_unsigned: self.allows_unsigned,
            accepts_unverified: self.accepts_unverified,
            hicn_key: self.hicn_key.clone(),
            known: self.known.clone(),
            keys: self.keys.clone(),
            factory: self.factory,
            own: None,
            verifier: None,
            fetched: Vec::new(),
            fetch_results: Vec::new(),
            signers: Vec::new(),
        }
    }

    /// Allows content with a digest instead of a signature, unless a signature was seen for its
    /// prefix.
    pub fn allow_unsigned(&mut self) {
        self.allows_unsigned = true;
    }

    /// Accepts packets whose signature cannot be verified, for example because the signer's
    /// certificate is unavailable, and unsigned ones. Names of a trust anchor, names with a known
    /// signer, and content with a verified signer are excepted. No signer must be remembered then.
    pub fn accept_unverified(&mut self) {
        (self.allows_unsigned, self.accepts_unverified) = (true, true);
    }

    pub fn accepts_unverified(&self) -> bool {
        self.accepts_unverified
    }

    /// Verifies packets of hICN producers with this key alone. hICN's library does not name keys in
    /// its packets, so the user must. `digest` identifies the key.
    pub fn set_hicn_key(&mut self, key: Arc<dyn Verifier>, digest: [u8; 32]) {
        self.hicn_key = Some((key, digest));
    }

    /// Identifies each key whose packets were accepted so far: a public key by its digest, a shared
    /// key by its name. So if the user replaces a shared key and keeps its name, it counts as the
    /// same key.
    pub fn accepted_keys(&self) -> Vec<[u8; 32]> {
        let keys = self.signers.iter().filter_map(|signer| match signer.basis {
            TrustBasis::Unsigned | TrustBasis::Unverified => None,
            TrustBasis::HicnKey => self.hicn_key.as_ref().map(|(_, digest)| *digest),
            TrustBasis::SharedKey => {
                signer.name.as_ref().map(|name| sha256(&[b"shared key", name.value()]))
            }
            TrustBasis::Anchor
            | TrustBasis::OwnKey
            | TrustBasis::KnownKey
            | TrustBasis::FirstUse => signer.key_digest,
        });
        let mut keys: Vec<[u8; 32]> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Decides whether the signer of `data` is trusted. `now_unix_s` is the time in seconds since
    /// the Unix epoch.
    pub fn decide(&mut self, data: &DataView<'_>, now_unix_s: i64) -> TrustDecision {
        let decided = match SignatureType(data.signature_info().signature_type) {
            found if self.hicn_key.is_some() && found != SignatureType::HICN => {
                refuse(format!("{} is not signed by the key given for hICN producers", data.name))
            }
            SignatureType::DIGEST_SHA256 => self.decide_unsigned(data.name),
            SignatureType::HMAC_SHA256 => self.decide_shared_key(data),
            SignatureType::HICN => self.decide_native(data, now_unix_s),
            SignatureType::NULL => refuse(format!("{} has no signature", data.name)),
            _ => self.decide_public_key(data, now_unix_s),
        };
        match decided {
            Ok(verifier) => TrustDecision::Accept(verifier),
            Err(Unresolved::Fetch { wanted, must_be_fresh }) => {
                TrustDecision::Fetch { wanted, must_be_fresh }
            }
            Err(Unresolved::Refuse(refusal)) => match self.decide_unverified(data, refusal) {
                Ok(verifier) => TrustDecision::Accept(verifier),
                Err(refusal) => TrustDecision::Refuse(refusal),
            },
        }
    }

    /// Accepts a refused packet unverified, if the user wants that and nothing is known that a
    /// forger could exploit.
    fn decide_unverified(
        &mut self,
        data: &DataView<'_>,
        refusal: Refusal,
    ) -> Result<Arc<dyn Verifier>, Refusal> {
        if !self.accepts_unverified || self.hicn_key.is_some() {
            return Err(refusal);
        }
        let name = data.name;
        let verified = self.signers.iter().find(|signer| signer.basis.is_verified());
        let obstacle = if self.requires_anchor(name) {
            Some(format!("{name} must be signed by a trust anchor"))
        } else if let Some((prefix, _)) = self.known.longest_known(name) {
            Some(format!("the signer of {prefix} is known"))
        } else {
            verified
                .map(|signer| format!("other packets of the same content are signed by {signer}"))
        };
        if let Some(obstacle) = obstacle {
            // The other refusals already say what contradicts the signer.
            if refusal.advice != Some(Advice::ImportCertificate) {
                return Err(refusal);
            }
            let reason = format!("{}, but {obstacle}", refusal.reason);
            return Err(Refusal { reason, advice: Some(Advice::AskProducer) });
        }
        let claimed = match data.signature_info().key_locator {
            Some(KeyLocatorView::Name(name)) => Some(name.to_name()),
            _ => None,
        };
        let basis = TrustBasis::Unverified;
        let signer = TrustedSigner { name: claimed, key_digest: None, basis };
        // Forged packets may claim any number of signers.
        if self.signers.len() < UNVERIFIED_MAX && !self.signers.contains(&signer) {
            self.signers.push(signer);
        }
        Ok(Arc::new(AnySignature(verifier_type(data))))
    }

    /// Adds a certificate from metadata. It names the signer, but does not make it trusted.
    pub fn offer_certificate(&mut self, certificate: &[u8]) {
        // Many objects have the same signer, so the same certificate arrives again and again.
        if let Ok(certificate) = Certificate::decode(certificate)
            && self.fetched.len() < FETCHES_MAX
            && !self.fetched.contains(&certificate)
            && self.is_self_signature_valid(&certificate)
        {
            self.fetched.push(certificate);
        }
    }

    /// Passes the answer for [`TrustDecision::Fetch`]: a Data packet, or `None` if none could be
    /// fetched. Certificates in metadata must be [added](Self::offer_certificate) before.
    pub fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        let refused = match (&wanted, packet) {
            // Metadata need not contain a certificate, so its absence is no refusal.
            (NeededPacket::MetadataOf(_), _) => None,
            (NeededPacket::Certificate(name), None) => {
                Some(format!("the signer's certificate {name} cannot be fetched"))
            }
            (NeededPacket::Certificate(name), Some(packet)) => {
                self.add_fetched_certificate(name, packet).err()
            }
        };
        let advice = Some(Advice::ImportCertificate);
        let refused = refused.map(|reason| Refusal { reason, advice });
        let known = self.fetch_results.iter_mut().find(|one| one.wanted == wanted);
        let tries_left = match (&known, packet) {
            // Another try helps only if the packet that arrived may be forged.
            (_, None) => 0,
            (None, Some(_)) => TRIES_MAX - 1,
            (Some(known), Some(_)) => known.tries_left.saturating_sub(1),
        };
        let answered = FetchResult { wanted, tries_left, refusal: refused };
        match known {
            Some(known) => *known = answered,
            None => self.fetch_results.push(answered),
        }
    }

    fn add_fetched_certificate(&mut self, name: &Name, packet: &[u8]) -> Result<(), String> {
        let certificate = Certificate::decode(packet).map_err(|error| {
            format!("the packet served as {name} is not a certificate: {error}")
        })?;
        let is_named = is_named_by(&certificate, &KeyLocatorView::Name(name.as_view()));
        if !is_named || !self.is_self_signature_valid(&certificate) {
            return Err(format!("the certificate served as {name} is forged or damaged"));
        }
        if !self.fetched.contains(&certificate) {
            self.fetched.push(certificate);
        }
        Ok(())
    }

    /// Whether only a trust anchor may sign this name: the user has named anchors for this policy,
    /// or an anchor's identity is a prefix of the name.
    fn requires_anchor(&self, name: NameView<'_>) -> bool {
        let mut anchors = self.anchors.anchors();
        self.needs_anchor || anchors.any(|anchor| anchor.identity().is_prefix_of(name))
    }

    fn decide_unsigned(&mut self, name: NameView<'_>) -> Result<Arc<dyn Verifier>, Unresolved> {
        if self.requires_anchor(name) {
            return refuse(format!(
                "{name} is not signed, but it must be signed by a trust anchor"
            ));
        }
        if let Some((prefix, digest)) = self.known.longest_known(name) {
            let reason = format!(
                "{name} is not signed, but {prefix} was signed by the key {} when it was first \
                 fetched, so {name} may be forged",
                Hex(digest)
            );
            return advise(reason, Advice::AskProducer);
        }
        // Anyone on the path can compute a digest, so it must not replace a signature.
        if let Some(signer) = self.signers.iter().find(|signer| signer.basis.is_verified()) {
            return refuse(format!(
                "{name} is not signed, but other packets of the same content are signed by \
                 {signer}, so {name} may be forged"
            ));
        }
        if !self.allows_unsigned {
            let reason = format!("{name} has no signature; anyone on the path may have made it");
            return advise(reason, Advice::AllowUnsigned);
        }
        self.signers.push(TrustedSigner {
            name: None,
            key_digest: None,
            basis: TrustBasis::Unsigned,
        });
        Ok(Arc::new(DigestVerifier))
    }

    /// Decides about a Data of an hICN producer.
    fn decide_native(
        &mut self,
        data: &DataView<'_>,
        now_unix_s: i64,
    ) -> Result<Arc<dyn Verifier>, Unresolved> {
        let name = data.name;
        if let Some((key, _)) = self.hicn_key.clone() {
            let basis = TrustBasis::HicnKey;
            let signer = TrustedSigner { name: None, key_digest: None, basis };
            if !self.signers.contains(&signer) {
                self.signers.push(signer);
            }
            return Ok(key);
        }
        if NativeData::of(data).and_then(|native| native.signed_octets()).is_none() {
            // Only the verifier differs from other unsigned content.
            return self.decide_unsigned(name).map(|_| Arc::new(UnsignedHicnVerifier) as _);
        }
        match self.decide_public_key(data, now_unix_s) {
            Err(Unresolved::Refuse(Refusal {
                advice: None | Some(Advice::ImportCertificate),
                ..
            })) => {
                let reason = format!("the packets of {name} do not say which key signed them");
                advise(reason, Advice::NameHicnKey)
            }
            decided => decided,
        }
    }

    fn decide_shared_key(&mut self, data: &DataView<'_>) -> Result<Arc<dyn Verifier>, Unresolved> {
        let name = data.name;
        if self.requires_anchor(name) {
            return refuse(format!("{name} is signed with a shared key, not by a trust anchor"));
        }
        // Everyone who can read has the shared key, so it must not replace a private key.
        if let Some((prefix, _)) = self.known.longest_known(name) {
            let reason = format!(
                "{name} is signed with a shared key, but {prefix} was signed with a private key \
                 when it was first fetched"
            );
            return advise(reason, Advice::AskProducer);
        }
        let Some(KeyLocatorView::Name(locator)) = data.signature_info().key_locator else {
            return refuse(format!("{name} does not name the shared key that signed it"));
        };
        let key = locator.to_name();
        let Some(keys) = &self.keys else {
            return refuse("there is no key chain with the shared key".into());
        };
        match keys.shared_key(&key) {
            Ok(verifier) => {
                let basis = TrustBasis::SharedKey;
                self.signers.push(TrustedSigner { name: Some(key), key_digest: None, basis });
                Ok(verifier.into())
            }
            Err(error) => {
                let reason = format!("the shared key {key} that signed it cannot be used: {error}");
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
                "{} does not name its signer, so it cannot be verified",
                data.name
            ));
        };
        let mut refusal = None;
        if !self.anchors.is_empty() {
            match self.verify_by_anchor(data, now_unix_s) {
                Ok(certificate) => return self.accept(data, &certificate, TrustBasis::Anchor),
                // Another basis may still apply, so the refusal is kept for the message.
                Err(Unresolved::Refuse(refused)) if !self.needs_anchor => {
                    refusal = Some(refused.reason)
                }
                Err(open) => return Err(open),
            }
        }
        // Reached only if the policy is not limited to anchors. The user's own key is then trusted
        // for all names.
        if let Some(certificate) = self.own_certificate(&locator) {
            return self.accept(data, &certificate, TrustBasis::OwnKey);
        }
        if let Some(reason) = refusal.filter(|_| self.requires_anchor(data.name)) {
            return advise(reason, Advice::AskProducer);
        }
        // Trust on first use compares the key with the key that signed this prefix before.
        let certificate = self.certificate(data, &locator, now_unix_s)?;
        if self.is_own(&certificate) {
            return self.accept(data, &certificate, TrustBasis::OwnKey);
        }
        self.on_first_use(data, &certificate, now_unix_s)
    }

    /// Whether this is the user's own key. A signature of hICN does not name it, so it was not
    /// found by its name.
    fn is_own(&self, certificate: &Certificate) -> bool {
        let own = |keys: &Arc<dyn KeySource>| keys.own_certificate(&certificate.name().to_name());
        let own = self.keys.as_ref().and_then(own);
        own.is_some_and(|own| own.public_key_digest() == certificate.public_key_digest())
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
        basis: TrustBasis,
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
        self.refuse_second_signer(data.name, &digest, basis)?;
        // Recorded although this packet may be forged in its name, so each signer is decided only
        // once.
        let signer = TrustedSigner { name: Some(name), key_digest: Some(digest), basis };
        if !self.signers.contains(&signer) {
            self.signers.push(signer);
        }
        Ok(verifier)
    }

    /// Finds a chain of certificates from a trust anchor to the signer of `data`.
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
                    let reason = format!("no trust anchor has certified it: {error}");
                    return advise(reason, Advice::AskProducer);
                }
            };
            self.accept_issued(&needed, 1, now_unix_s)?;
        }
        refuse("too many certificates lead to its signer".into())
    }

    /// Adds the certificate `name` to the anchors, after the certificates of its issuers. A
    /// certificate that the anchors do not accept may be forged. It is removed, and may be fetched
    /// again.
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
            // The issuer is not accepted yet. Accept it first, then try this certificate again.
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
                reason: format!("no trust anchor has certified {name}: {error}"),
                advice: None,
            });
            let before = self.fetched.len();
            self.fetched.retain(|known| *known != certificate);
            // The user keeps this certificate, so another fetch cannot replace it.
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
            return refuse(format!("its signer is not trusted now: {error}"));
        }
        let digest = certificate.public_key_digest();
        let basis = match self.known.decide(data.name, &digest) {
            SignerStatus::Trusted => TrustBasis::KnownKey,
            SignerStatus::FirstUse => TrustBasis::FirstUse,
            SignerStatus::Changed { known } => {
                let reason = format!(
                    "{} was signed with another key than before: {} of {name}, not {}",
                    data.name,
                    Hex(&digest),
                    Hex(&known),
                );
                return advise(reason, Advice::AskProducer);
            }
        };
        self.accept(data, certificate, basis)
    }

    /// Refuses a second signer if one of the two is seen for the first time. Otherwise an attacker
    /// could add packets to content that its owner has signed.
    fn refuse_second_signer(
        &self,
        name: NameView<'_>,
        key_digest: &[u8; 32],
        basis: TrustBasis,
    ) -> Result<(), Unresolved> {
        let other = self.signers.iter().find(|signer| {
            let is_new = basis == TrustBasis::FirstUse || signer.basis == TrustBasis::FirstUse;
            is_new && signer.basis.is_verified() && signer.key_digest != Some(*key_digest)
        });
        let Some(first) = other else { return Ok(()) };
        let reason = format!(
            "{name} is signed by the key {}, but other packets of the same content by {first}; one \
             of the two may be forged",
            Hex(key_digest),
        );
        advise(reason, Advice::NameAnchors)
    }

    /// Returns the certificate that a locator names and whose key signed `data`. It comes from the
    /// object's metadata, or is fetched by its name. Several certificates may have this name,
    /// because some may be forged. If none of them signed `data`, the packet may be forged.
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
                reason: "its signer is named only by the digest of a key".to_string(),
                advice: Some(Advice::ImportCertificate),
            }),
        };
        if let Unresolved::Fetch { .. } = open {
            return Err(open);
        }
        // A version requested by name is fetched without its metadata, which may contain the
        // certificate. The object's name ends before the version.
        let mut components = data.name.components();
        let version = components.position(|component| component.as_version().is_some());
        let metadata =
            version.map(|count| NeededPacket::MetadataOf(data.name.prefix(count).to_name()));
        match metadata.filter(|wanted| self.fetch_result_for(wanted).is_none()) {
            Some(wanted) => Err(Unresolved::Fetch { wanted, must_be_fresh: false }),
            // All sources are exhausted. A certificate that did not sign `data` is returned, so
            // that the verification of `data` fails.
            None => named.into_iter().next().ok_or(open),
        }
    }

    fn fetch_result_for(&self, wanted: &NeededPacket) -> Option<&FetchResult> {
        self.fetch_results.iter().find(|answered| answered.wanted == *wanted)
    }

    /// The certificates that a locator names. Fetched certificates come first, the latest at the
    /// front. The certificates that the user keeps follow, and the trust anchors: outside of its
    /// identity, an anchor is a signer like any other.
    fn named_by(&self, locator: &KeyLocatorView<'_>) -> Vec<Certificate> {
        let mut all: Vec<_> = self.fetched.iter().rev().cloned().collect();
        if let Some(keys) = &self.keys {
            all.extend(keys.certificates());
        }
        all.extend(self.anchors.anchors().cloned());
        all.retain(|certificate| is_named_by(certificate, locator));
        all
    }

    fn find_or_fetch(&self, name: &Name) -> Result<Certificate, Unresolved> {
        let named = self.named_by(&KeyLocatorView::Name(name.as_view()));
        named.into_iter().next().ok_or_else(|| self.fetch(name))
    }

    /// Requests a certificate for the first time, or again while tries remain.
    fn fetch(&self, name: &Name) -> Unresolved {
        let wanted = NeededPacket::Certificate(name.clone());
        let must_be_fresh = match self.fetch_result_for(&wanted) {
            Some(FetchResult { tries_left: 0, refusal: refused, .. }) => {
                return Unresolved::Refuse(refused.clone().unwrap_or_else(|| Refusal {
                    reason: format!("the certificate {name} does not belong to its signer"),
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

    /// A certificate signed by its own key must have a valid signature. Signatures of others are
    /// checked only by anchors.
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

/// Accepts every signature of this type.
struct AnySignature(SignatureType);

impl Verifier for AnySignature {
    fn signature_type(&self) -> SignatureType {
        self.0
    }

    fn accepts_any(&self) -> bool {
        true
    }

    fn verify(&self, _portions: &[&[u8]], _signature: &[u8]) -> Result<(), VerifyError> {
        Ok(())
    }
}

/// Bytes in hexadecimal.
struct Hex<'a>(&'a [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}
