#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod certificate;
mod digest;
pub mod manifest;
mod sign;
#[cfg(test)]
mod test_keys;
pub mod trust;

pub use certificate::{
    Certificate, CertificateDraft, CertificateError, IssueError, SELF_ISSUER, Validity,
    identity_of, is_certificate_name, is_key_name, key_name, key_name_of,
};
pub use digest::{
    DigestSigner, DigestVerifier, NullSigner, UnsignedHicnVerifier, sha256, sha256_each,
};
pub use sign::{
    KeyLocator, SignError, SignatureFormat, SignatureType, Signer, Verifier, VerifierFactory,
    VerifyError, native_signing, sign_data, sign_data_as, sign_interest, verify_data,
    verify_interest,
};
