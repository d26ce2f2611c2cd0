//! Who signs.

use weir_crypto::{KeyChain, KeyChainError};
use weir_security::DigestSigner;
use weir_socket::Identity;
use weir_wire::Name;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// The user's default key, which is made if there is none.
    #[default]
    Default,
    /// No key: a digest shows that content is whole, not who made it.
    Digest,
    /// A key of the user, by its name, its identity's or its certificate's.
    Key(Name),
}

/// Who signs what is published.
///
/// # Errors
/// The key cannot be read, or there is none of that name, or none can be made.
pub fn identity(signing: &Signing) -> Result<Identity, KeyChainError> {
    let signer = match signing {
        Signing::Digest => return Ok(Identity::new(DigestSigner)),
        Signing::Default => KeyChain::open()?.default_signer_or_create()?,
        Signing::Key(name) => KeyChain::open()?.signer(name)?,
    };
    let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
    Ok(Identity { certificate, ..Identity::new(signer) })
}
