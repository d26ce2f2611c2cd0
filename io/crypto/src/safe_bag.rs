//! SafeBag: a certificate and its encrypted private key in one file (ndnsec's export form).

use weir_security::Certificate;
use weir_wire::tlv::{self, Reader, Writer};

use crate::pem::{decrypt_pkcs8, encrypt_pkcs8};
use crate::private_key::{KeyError, PrivateKey};

/// TLV-TYPE of a SafeBag.
pub(crate) const TYPE_SAFE_BAG: u32 = 128;
/// TLV-TYPE of its EncryptedKey: a PKCS#8 EncryptedPrivateKeyInfo.
pub(crate) const TYPE_ENCRYPTED_KEY: u32 = 129;

/// Reads a SafeBag: the certificate, and the key decrypted with `passphrase`.
///
/// # Errors
/// Any [`KeyError`]; [`KeyError::Malformed`] also if the key is not the certificate's.
pub(crate) fn decode_safe_bag(
    wire: &[u8],
    passphrase: &str,
) -> Result<(Certificate, PrivateKey), KeyError> {
    let value = tlv::read_single_of(wire, TYPE_SAFE_BAG).map_err(|_| KeyError::Malformed)?;
    let mut reader = Reader::new(value);
    let certificate = read_element(&mut reader, tlv::DATA)?.wire;
    let encrypted = read_element(&mut reader, TYPE_ENCRYPTED_KEY)?.value;
    let certificate = Certificate::decode(certificate).map_err(|_| KeyError::Malformed)?;
    let key = decrypt_pkcs8(encrypted, passphrase)?;
    if key.public_key()? != certificate.public_key() {
        return Err(KeyError::Malformed);
    }
    Ok((certificate, key))
}

/// Writes a SafeBag.
///
/// # Errors
/// The key cannot be exported.
pub(crate) fn encode_safe_bag(
    certificate: &Certificate,
    key: &PrivateKey,
    passphrase: &str,
) -> Result<Vec<u8>, KeyError> {
    let encrypted = encrypt_pkcs8(key, passphrase)?;
    let mut writer = Writer::new();
    writer.nested(TYPE_SAFE_BAG, |bag| {
        bag.raw(certificate.wire());
        bag.tlv(TYPE_ENCRYPTED_KEY, &encrypted);
    });
    Ok(writer.into_vec())
}

fn read_element<'a>(reader: &mut Reader<'a>, typ: u32) -> Result<tlv::Element<'a>, KeyError> {
    match reader.next_element() {
        Ok(Some(element)) if element.typ == typ => Ok(element),
        _ => Err(KeyError::Malformed),
    }
}
