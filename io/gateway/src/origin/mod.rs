//! The origin.
use crate::config::OriginConfig;
use weir_socket::{Identity, Session};

/// Why an origin does not start.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    #[error("{0}")]
    Url(String),
    #[error(transparent)]
    Socket(#[from] weir_socket::SocketError),
}

/// Answers Interests below a prefix with responses of an HTTP server.
pub struct Origin {}

impl Origin {
    pub async fn start(
        session: &Session,
        identity: Identity,
        config: OriginConfig,
    ) -> Result<Self, OriginError> {
        let _ = (session, identity, config);
        Ok(Self {})
    }
}
