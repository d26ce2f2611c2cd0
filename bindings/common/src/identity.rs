//! Identities that sign content.

use weir_crypto::{KeyChain, KeyChainError};
use weir_security::DigestSigner;
use weir_socket::Identity;
use weir_wire::Name;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// The user's default key. Created if there is none.
    #[default]
    Default,
    /// No key: a digest protects integrity, but does not show the origin.
    Digest,
    /// A key of the user, by the name of the key, its identity or its certificate.
    Key(Name),
}

/// The identity for a signing option.
///
/// # Errors
/// The key cannot be read or created, or does not exist.
pub fn identity(signing: &Signing) -> Result<Identity, KeyChainError> {
    let signer = match signing {
        Signing::Digest => return Ok(Identity::new(DigestSigner)),
        Signing::Default => KeyChain::open()?.default_signer_or_create()?,
        Signing::Key(name) => KeyChain::open()?.signer(name)?,
    };
    let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
    Ok(Identity { certificate, ..Identity::new(signer) })
}
