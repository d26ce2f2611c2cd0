//! Why an agent does not start.

use std::io;

/// Why an agent does not start, or a producer cannot tell of its files.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("`{0}` is no name of a router: 1 to 64 of A-Z a-z 0-9 . _ -")]
    Name(String),
    /// The address cannot be one.
    #[error("`{0}` is no address of a controller such as https://controller.example:8636")]
    Url(String),
    #[error("the token has several lines; its file has to hold the token alone, in one line")]
    Token,
    /// The token would travel as plain text.
    #[error(
        "the token would travel to {0} as plain text, which is not this machine: use https, or \
         say `insecure` if the network is trusted or TLS ends elsewhere"
    )]
    PlainToken(String),
    /// Nobody vouches for the controller.
    #[error("an https controller needs the certificates by which it is believed: set `ca`")]
    NoCertificates,
    /// The certificates cannot be read.
    #[error("the certificates of the controller cannot be read: {0}")]
    Certificates(String),
    /// One's own certificate without its key, the other way round, or neither of use.
    #[error("one's own certificate for the controller cannot be used: {0}")]
    OwnCertificate(&'static str),
    /// The system refuses something.
    #[error(transparent)]
    System(#[from] io::Error),
}
