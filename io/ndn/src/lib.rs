#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub use weir_base::units::{Size, Time};
pub use weir_crypto::{KeyChain, KeyChainError, UserTrust};
pub use weir_face::FaceUri;
pub use weir_security::{DigestSigner, DigestVerifier, Signer, Verifier};
pub use weir_socket::{
    Consumer, ConsumerOptions, Identity, LiveWriter, Offer, Pending, Producer, ProducerOptions,
    Reader, Request, Session, SessionConfig, SocketError,
};
pub use weir_wire::Name;
