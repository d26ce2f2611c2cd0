//! Private keys of ndnd: a Data packet of content type 9 with the name of the key, signed by the
//! key itself, and with the unencrypted key as its Content (ndnd 31822ab,
//! `std/security/signer/marshal.go`).

use weir_security::{SignatureType, is_key_name, verify_data};
use weir_wire::{DataView, Name};

use crate::private_key::{KeyError, PrivateKey};
use crate::verifier::verifier_from_spki;

const CONTENT_TYPE_SIGNING_KEY: u64 = 9;

/// Reads the name and the key from a Data packet.
///
/// # Errors
/// Any [`KeyError`]; [`KeyError::Malformed`] also if the key has not signed the packet.
pub(crate) fn decode_ndnd_key(packet: &[u8]) -> Result<(Name, PrivateKey), KeyError> {
    let data = DataView::decode(packet).map_err(|_| KeyError::Malformed)?;
    if data.content_type != CONTENT_TYPE_SIGNING_KEY || !is_key_name(data.name) {
        return Err(KeyError::Malformed);
    }
    let signature_type = SignatureType(data.signature_info().signature_type);
    let key = PrivateKey::from_ndnd(signature_type, data.content)?;
    let verifier = verifier_from_spki(&key.public_key()?)?;
    verify_data(&data, &*verifier).map_err(|_| KeyError::Malformed)?;
    Ok((data.name.to_name(), key))
}
