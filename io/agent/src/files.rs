//! Files that a producer tells a controller of.

use weir_control::File;

use crate::config::AgentError;
use crate::rest::{Http, RestError};

/// A controller, as a producer sees it: it plans for the files that it is told of.
#[derive(Clone, Debug)]
pub struct Files {
    http: Http,
}

/// Why a controller does not take a file.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FileError(#[from] RestError);

impl Files {
    /// The controller at `url`, to which requests bear `token`; `ca_pem` has the certificates by
    /// which an `https` one is believed.
    ///
    /// # Errors
    /// The address or the certificates cannot be used. Nothing is sent yet.
    pub fn new(url: &str, token: Option<&str>, ca_pem: Option<&[u8]>) -> Result<Self, AgentError> {
        Ok(Self { http: Http::new(url, token, ca_pem)? })
    }

    /// Tells of a file. The same again is no error.
    ///
    /// # Errors
    /// The controller refuses it or does not answer.
    pub fn add(&self, file: &File) -> Result<(), FileError> {
        Ok(self.http.post("/v1/files", file).map(drop)?)
    }
}
