#![doc = include_str!("../README.md")]

pub mod keychain;
mod passphrase;
mod pem;
mod private_key;
mod random;
mod safe_bag;
mod signer;
mod text;
mod verifier;

pub use keychain::{Imported, KeyChain, KeyChainError, KeyEntry, UserTrust};
pub use passphrase::{PASSPHRASE_VARIABLE, PassphraseError, PassphraseSource};
pub use pem::{
    PBKDF2_ROUNDS, decrypt_pkcs8, encrypt_pkcs8, is_encrypted, private_key_from_pem,
    private_key_to_pem,
};
pub use private_key::{HMAC_KEY_LEN, HMAC_KEY_LEN_MIN, KeyError, KeyType, PrivateKey};
pub use random::{fill_random, random_octets};
pub use safe_bag::{TYPE_ENCRYPTED_KEY, TYPE_SAFE_BAG, decode_safe_bag, encode_safe_bag};
pub use signer::KeySigner;
pub use text::{packet_in_file, to_base64_lines};
pub use verifier::{
    EcdsaVerifier, Ed25519Verifier, HmacVerifier, Provider, RsaVerifier, verifier_from_certificate,
    verifier_from_spki,
};
