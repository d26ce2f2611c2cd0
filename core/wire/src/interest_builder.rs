use alloc::vec::Vec;

use sha2::{Digest, Sha256};

use crate::builder::{infallible, setters, sha256_of};
use crate::name::{Component, DIGEST_SIZE, Name};
use crate::signature::{SignatureInfo, signature_type};
use crate::tlv::{self, Writer};

/// An Interest to be encoded.
///
/// If there are parameters, encoding adds a ParametersSha256Digest component to the name. It takes
/// the place of an existing one, or comes last.
///
/// Receivers reject an Interest with an empty name, or with a ParametersSha256Digest component but
/// no parameters. Encoding does not check this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub name: Name,
    /// Whether the name may be a proper prefix of the Data's name.
    pub can_be_prefix: bool,
    /// Whether caches may only answer with fresh Data.
    pub must_be_fresh: bool,
    /// The names of ForwardingHint, which is absent if there are none.
    pub forwarding_hint: Vec<Name>,
    /// Nonce, its four octets as a big-endian number.
    pub nonce: Option<u32>,
    /// InterestLifetime in milliseconds. If absent, receivers assume 4000.
    pub lifetime_ms: Option<u64>,
    pub hop_limit: Option<u8>,
    pub application_parameters: Option<Vec<u8>>,
}

impl Interest {
    /// An Interest for exactly this name.
    pub fn new(name: Name) -> Self {
        Self { name, ..Self::default() }
    }

    setters! {
        can_be_prefix: bool => can_be_prefix;
        must_be_fresh: bool => must_be_fresh;
        /// Sets the names of the ForwardingHint.
        forwarding_hint: Vec<Name> => forwarding_hint;
        nonce: u32 => Some(nonce);
        /// Sets InterestLifetime, in milliseconds.
        lifetime_ms: u64 => Some(lifetime_ms);
        hop_limit: u8 => Some(hop_limit);
        application_parameters: impl Into<Vec<u8>> => Some(application_parameters.into());
    }

    /// Encodes the Interest without a signature.
    pub fn encode(&self) -> Vec<u8> {
        let Some(parameters) = &self.application_parameters else {
            let mut body = Writer::with_capacity(self.name.value().len() + 64);
            body.tlv(tlv::NAME, self.name.value());
            self.write_guiders(&mut body);
            return finish(&body);
        };
        let index = self.name.as_view().components().position(|c| c.is_parameters_digest());
        let name = self.name_with_digest(index.unwrap_or(usize::MAX));
        let mut body = Writer::with_capacity(name.value().len() + parameters.len() + 64);
        let digest_at = write_name(&name, &mut body);
        self.write_guiders(&mut body);
        let parameters_at = body.len();
        body.tlv(tlv::APPLICATION_PARAMETERS, parameters);
        fill_digest(&mut body, digest_at, parameters_at);
        finish(&body)
    }

    /// Encodes a signed Interest. `sign` computes the signature value of the signed portion, which
    /// is given as consecutive slices. Adds empty parameters if there are none.
    pub fn encode_signed(
        &self,
        info: &SignatureInfo,
        sign: impl FnOnce(&[&[u8]]) -> Vec<u8>,
    ) -> Vec<u8> {
        infallible(self.try_encode_signed(info, |portions| Ok(sign(portions))))
    }

    /// Like [`Interest::encode_signed`], for a signer that may fail.
    ///
    /// # Errors
    /// Those of `sign`.
    pub fn try_encode_signed<E>(
        &self,
        info: &SignatureInfo,
        sign: impl FnOnce(&[&[u8]]) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let parameters = self.application_parameters.as_deref().unwrap_or_default();
        // In a signed Interest, the digest must be the last component.
        let name = self.name_with_digest(usize::MAX);
        let mut body = Writer::with_capacity(name.value().len() + parameters.len() + 256);
        let digest_at = write_name(&name, &mut body);
        self.write_guiders(&mut body);
        let parameters_at = body.len();
        body.tlv(tlv::APPLICATION_PARAMETERS, parameters);
        info.write(tlv::INTEREST_SIGNATURE_INFO, &mut body);
        let name_portion = &name.value()[..name.value().len() - DIGEST_SIZE - 2];
        let signature = sign(&[name_portion, &body.as_slice()[parameters_at..]])?;
        body.tlv(tlv::INTEREST_SIGNATURE_VALUE, &signature);
        // The digest covers the signature, and the signature does not cover the digest.
        fill_digest(&mut body, digest_at, parameters_at);
        Ok(finish(&body))
    }

    /// Encodes a signed Interest with a DigestSha256, which proves integrity only. `info` gives
    /// SignatureNonce, SignatureTime and SignatureSeqNum; its type is ignored.
    pub fn encode_with_digest(&self, info: &SignatureInfo) -> Vec<u8> {
        let info = SignatureInfo {
            signature_type: signature_type::DIGEST_SHA256,
            key_locator: None,
            ..info.clone()
        };
        self.encode_signed(&info, sha256_of)
    }

    /// The name with one ParametersSha256Digest component, of zeros, at `index` or at the end.
    fn name_with_digest(&self, index: usize) -> Name {
        let placeholder = Component::parameters_digest([0; DIGEST_SIZE]);
        let mut name = Name::new();
        let others = self.name.as_view().components().filter(|c| !c.is_parameters_digest());
        for (at, component) in others.enumerate() {
            if at == index {
                name.push(&placeholder);
            }
            name.push_view(component);
        }
        if index >= name.component_count() {
            name.push(&placeholder);
        }
        name
    }

    /// Writes the elements between Name and ApplicationParameters.
    fn write_guiders(&self, body: &mut Writer) {
        if self.can_be_prefix {
            body.tlv(tlv::CAN_BE_PREFIX, &[]);
        }
        if self.must_be_fresh {
            body.tlv(tlv::MUST_BE_FRESH, &[]);
        }
        if !self.forwarding_hint.is_empty() {
            body.nested(tlv::FORWARDING_HINT, |body| {
                for name in &self.forwarding_hint {
                    body.tlv(tlv::NAME, name.value());
                }
            });
        }
        if let Some(nonce) = self.nonce {
            body.tlv(tlv::NONCE, &nonce.to_be_bytes());
        }
        if let Some(lifetime_ms) = self.lifetime_ms {
            body.nni(tlv::INTEREST_LIFETIME, lifetime_ms);
        }
        if let Some(hop_limit) = self.hop_limit {
            body.tlv(tlv::HOP_LIMIT, &[hop_limit]);
        }
    }
}

/// Writes a name with one ParametersSha256Digest component. Returns the offset of the digest in
/// `body`.
fn write_name(name: &Name, body: &mut Writer) -> usize {
    body.tlv(tlv::NAME, name.value());
    let mut components = name.as_view().components();
    let found = components.find(|component| component.is_parameters_digest());
    debug_assert!(found.is_some(), "the name was given a digest component");
    body.len() - components.as_name().value().len() - DIGEST_SIZE
}

/// Writes the digest of all octets from `parameters_at` on at `digest_at`.
fn fill_digest(body: &mut Writer, digest_at: usize, parameters_at: usize) {
    let octets = body.as_mut_slice();
    let digest = Sha256::digest(&octets[parameters_at..]);
    octets[digest_at..digest_at + DIGEST_SIZE].copy_from_slice(&digest);
}

fn finish(body: &Writer) -> Vec<u8> {
    let mut out = Writer::with_capacity(body.len() + 10);
    out.tlv(tlv::INTEREST, body.as_slice());
    out.into_vec()
}
