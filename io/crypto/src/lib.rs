#![doc = include_str!("../README.md")]

mod keychain;
mod ndnd_key;
mod passphrase;
mod pem;
mod private_key;
mod random;
mod safe_bag;
mod signer;
mod text;
mod verifier;

#[cfg(test)]
mod tests;

pub use keychain::{
    ISSUED_VALIDITY_S, Imported, KeyChain, KeyChainError, KeyEntry, UserTrust, default_identity,
    read_certificate, unix_time_s,
};
pub use passphrase::{PassphraseError, PassphraseSource};
pub use private_key::{KeyError, KeyType, PrivateKey};
pub use random::random_octets;
pub use signer::KeySigner;
pub use text::{packet_in_file, to_base64_lines};
pub use verifier::{hicn_verifier, verifier_from_certificate, verifier_from_spki};
