//! Selection of the router.

use weir_face::{FaceUri, client_transport};
use weir_socket::SocketError;

/// Resolves a router address or the path of its Unix socket. The default is the router that `weir
/// get` finds. Blocks for name resolution.
///
/// # Errors
/// [`SocketError::NoRouter`]: the address is invalid.
pub fn router_of(text: Option<&str>) -> Result<FaceUri, SocketError> {
    let no_router = |error: &dyn std::fmt::Display| SocketError::NoRouter(error.to_string());
    match text {
        None => client_transport().map(|choice| choice.uri).map_err(|error| no_router(&error)),
        Some(path) if path.starts_with('/') => Ok(FaceUri::Unix(path.into())),
        Some(text) => FaceUri::resolve_reachable(text, None).map_err(|error| no_router(&error)),
    }
}
