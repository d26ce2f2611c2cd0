//! Files that a producer tells a controller of.

use weir_control::File;

use crate::access::Access;
use crate::error::AgentError;
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
    /// The files of one controller.
    ///
    /// # Errors
    /// The address or the certificates cannot be used, or the token would travel as plain text.
    /// Nothing is sent yet.
    pub fn new(access: &Access) -> Result<Self, AgentError> {
        Ok(Self { http: Http::new(access)? })
    }

    /// Tells of a file. The same again is no error.
    ///
    /// # Errors
    /// The controller refuses it or does not answer.
    pub fn add(&self, file: &File) -> Result<(), FileError> {
        Ok(self.http.post("/v1/files", file).map(drop)?)
    }
}
