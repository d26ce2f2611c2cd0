//! PKCS#8 as PEM text, plain or encrypted (PBES2 with PBKDF2-HMAC-SHA256 and AES-256-CBC, which
//! OpenSSL and the other NDN libraries read).

use pkcs8::der::pem::{self, LineEnding};
use pkcs8::pkcs5::pbes2;
use pkcs8::{EncryptedPrivateKeyInfoRef, PrivateKeyInfoRef};
use zeroize::Zeroizing;

use crate::private_key::{KeyError, PrivateKey};
use crate::random::random_octets;

/// Rounds of PBKDF2 for a new passphrase (as OWASP recommends for HMAC-SHA256).
pub(crate) const PBKDF2_ROUNDS: u32 = 600_000;

/// Size limit of PEM text, in bytes: an RSA key of 8192 bits has about 9000.
pub(crate) const PEM_LEN_MAX: usize = 64 * 1024;

const LABEL_PLAIN: &str = "PRIVATE KEY";
const LABEL_ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

/// Whether the PEM text holds an encrypted key.
pub(crate) fn is_encrypted(pem: &str) -> bool {
    pem.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
}

/// Reads a key from PEM text. Skips text before the first boundary line. Only an encrypted key
/// needs `passphrase`.
pub(crate) fn private_key_from_pem(
    pem: &str,
    passphrase: Option<&str>,
) -> Result<PrivateKey, KeyError> {
    let at = pem.find("-----BEGIN ").ok_or(KeyError::Malformed)?;
    let (label, der) = pem::decode_vec(&pem.as_bytes()[at..]).map_err(|_| KeyError::Malformed)?;
    let der = Zeroizing::new(der);
    match label {
        LABEL_PLAIN => PrivateKey::from_pkcs8(&der),
        LABEL_ENCRYPTED => decrypt_pkcs8(&der, passphrase.ok_or(KeyError::PassphraseNeeded)?),
        _ => Err(KeyError::UnsupportedAlgorithm),
    }
}

/// Reads a SubjectPublicKeyInfo (DER) from PEM text; `None` if there is none.
pub(crate) fn public_key_from_pem(text: &str) -> Option<Vec<u8>> {
    let at = text.find("-----BEGIN PUBLIC KEY-----")?;
    let (_, der) = pem::decode_vec(&text.as_bytes()[at..]).ok()?;
    Some(der)
}

/// Writes a key as PEM text, encrypted if a passphrase is given.
pub(crate) fn private_key_to_pem(
    key: &PrivateKey,
    passphrase: Option<&str>,
) -> Result<Zeroizing<String>, KeyError> {
    let text = match passphrase {
        None => pem::encode_string(LABEL_PLAIN, LineEnding::LF, &key.to_pkcs8()?),
        Some(passphrase) => {
            pem::encode_string(LABEL_ENCRYPTED, LineEnding::LF, &encrypt_pkcs8(key, passphrase)?)
        }
    };
    Ok(Zeroizing::new(text.map_err(|_| KeyError::Malformed)?))
}

/// Reads an EncryptedPrivateKeyInfo (DER).
pub(crate) fn decrypt_pkcs8(der: &[u8], passphrase: &str) -> Result<PrivateKey, KeyError> {
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(der).map_err(|_| KeyError::Malformed)?;
    let plain = encrypted.decrypt(passphrase).map_err(|_| KeyError::Decrypt)?;
    PrivateKey::from_pkcs8(plain.as_bytes())
}

/// Writes an EncryptedPrivateKeyInfo (DER).
pub(crate) fn encrypt_pkcs8(key: &PrivateKey, passphrase: &str) -> Result<Vec<u8>, KeyError> {
    let plain = key.to_pkcs8()?;
    let info = PrivateKeyInfoRef::try_from(&plain[..]).map_err(|_| KeyError::Malformed)?;
    let salt = random_octets::<16>();
    let parameters =
        pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(PBKDF2_ROUNDS, &salt, random_octets())
            .map_err(|_| KeyError::Refused("the encryption parameters"))?;
    let encrypted = info
        .encrypt_with_params(parameters, passphrase)
        .map_err(|_| KeyError::Refused("the encryption failed"))?;
    Ok(encrypted.as_bytes().to_vec())
}
