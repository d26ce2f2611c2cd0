//! Errors at the start of an agent.

use std::io;

/// Why an agent does not start, or a producer cannot register files.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("`{0}` cannot be the name of a router: use 1 to 64 of A-Z a-z 0-9 . _ -")]
    Name(String),
    /// The address has no scheme `http` or `https`, or no host.
    #[error("`{0}` is not a controller's address; write it as https://controller.example:8636")]
    Url(String),
    #[error("the token has several lines; its file must contain the token alone, in one line")]
    Token,
    /// The token would be sent unencrypted.
    #[error(
        "the token would be sent unencrypted to {0}, which is not this machine: use https, or \
         set `insecure` if the network is trusted or TLS ends elsewhere"
    )]
    PlainToken(String),
    /// No certificates are configured to verify the controller.
    #[error("https needs certificates to verify the controller: set `ca` to a PEM file")]
    NoCertificates,
    /// The configured certificates cannot be read.
    #[error("the certificates in `ca` cannot be read: {0}")]
    Certificates(String),
    /// The client certificate or its key is missing or unusable.
    #[error("the client certificate for the controller cannot be used: {0}")]
    OwnCertificate(&'static str),
    /// The operating system reports an error.
    #[error(transparent)]
    System(#[from] io::Error),
}
