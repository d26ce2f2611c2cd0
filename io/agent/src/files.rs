//! Registers a producer's files with a controller.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_control::File;
use weir_wire::Name;

use crate::access::Access;
use crate::error::AgentError;
use crate::rest::{ControllerClient, RestError, parse_answer};
use crate::retry_waits::RetryWaits;

/// Files in one request: as many as a controller accepts.
const LIST_MAX: usize = 1000;

/// A producer's connection to a controller, which plans for the files that are registered.
#[derive(Clone, Debug)]
pub struct Files {
    http: ControllerClient,
}

/// Why a controller does not accept files.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FileError(#[from] RestError);

impl FileError {
    /// The HTTP status of the refusal; none if the controller does not answer.
    pub fn status(&self) -> Option<u16> {
        match self.0 {
            RestError::Refused { status, .. } => Some(status),
            RestError::Unreachable(_) | RestError::BadAnswer(_) => None,
        }
    }
}

/// A file that is registered at a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredFile {
    /// The name of its segments without the segment number; it includes the version.
    pub name: Name,
    pub segments: u64,
    pub size_bytes: u64,
    /// Role and name of the token that registered it.
    pub owner: String,
    /// The newest version of it by the same owner, if that is not this one. Routers keep only that
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer: Option<Name>,
}

/// A file that the controller refuses while it accepts others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FileRefused {
    pub name: Name,
    /// The controller's reason.
    pub error: String,
}

/// The progress of a registration in the background.
#[derive(Debug)]
pub enum FilesEvent {
    /// The controller refuses this file permanently.
    Refused(FileRefused),
    /// The controller does not answer or has no space for now. The registration is retried. This
    /// event comes once.
    Waiting(FileError),
    /// The controller refuses all files permanently.
    Failed(FileError),
    /// All files are registered, except for those refused.
    Done,
}

impl Files {
    /// A client for one controller.
    ///
    /// # Errors
    /// The address or the certificates cannot be used, or the token would be sent unencrypted.
    /// Nothing is sent yet.
    pub fn new(access: &Access) -> Result<Self, AgentError> {
        Ok(Self { http: ControllerClient::new(access)? })
    }

    /// Registers files, a thousand in each request. Returns the files that the controller refuses.
    /// A file that is registered already is no error.
    pub fn add(&self, files: &[File]) -> Result<Vec<FileRefused>, FileError> {
        let mut refused = Vec::new();
        for files in files.chunks(LIST_MAX) {
            let octets = self.http.post("/v1/files/list", &files)?;
            refused.extend(parse_answer::<Vec<FileRefused>>(octets)?);
        }
        Ok(refused)
    }

    /// The registered files in the order of their names.
    pub fn list(&self) -> Result<Vec<RegisteredFile>, FileError> {
        let mut files: Vec<RegisteredFile> = Vec::new();
        loop {
            let after = files.last().map(|file| file.name.to_string());
            let after = after.as_ref().map(|after| ("after", after.as_str()));
            let octets = self.http.get("/v1/files", after, Duration::ZERO)?;
            let next: Vec<RegisteredFile> = parse_answer(octets)?;
            // The controller decides how many files an answer contains.
            if next.is_empty() {
                return Ok(files);
            }
            files.extend(next);
        }
    }

    /// Withdraws a file that is no longer served. Returns whether the controller knew it.
    pub fn withdraw(&self, name: &Name) -> Result<bool, FileError> {
        match self.http.delete("/v1/files", "name", &name.to_string()) {
            Ok(_) => Ok(true),
            Err(error) if error.is_unknown() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Withdraws files. Returns the files that this token may not withdraw, with the reasons.
    fn withdraw_all(&self, names: &[Name]) -> Result<Vec<FileRefused>, FileError> {
        let mut refused = Vec::new();
        for name in names {
            match self.withdraw(name) {
                Err(FileError(error)) if !error.is_transient() => {
                    refused.push(FileRefused { name: name.clone(), error: error.to_string() });
                }
                result => drop(result?),
            }
        }
        Ok(refused)
    }

    /// Withdraws files, then registers others, in a thread of its own. It retries with growing
    /// waits until the controller has answered, and calls `on_event` with the progress.
    pub fn register_in_background(
        &self,
        files: Vec<File>,
        withdrawn: Vec<Name>,
        mut on_event: impl FnMut(FilesEvent) + Send + 'static,
    ) -> io::Result<BackgroundRegistration> {
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let (telling, this) = (BackgroundRegistration { stop: Arc::clone(&stop) }, self.clone());
        let mut backoff = RetryWaits::new(getrandom::u64().map_err(io::Error::other)?);
        std::thread::Builder::new().name("weir-files".into()).spawn(move || {
            loop {
                // A retry repeats all requests. A file that was handled before is no error.
                let all = this.withdraw_all(&withdrawn).and_then(|mut refused| {
                    refused.append(&mut this.add(&files)?);
                    Ok(refused)
                });
                let FileError(error) = match all {
                    Ok(refused) => {
                        refused.into_iter().map(FilesEvent::Refused).for_each(&mut on_event);
                        return on_event(FilesEvent::Done);
                    }
                    Err(error) => error,
                };
                if !error.is_transient() {
                    return on_event(FilesEvent::Failed(error.into()));
                }
                let pause = backoff.next(error.retry_after());
                if backoff.is_first() {
                    on_event(FilesEvent::Waiting(error.into()));
                }
                if wait_for_stop(&stop, pause) {
                    return;
                }
            }
        })?;
        Ok(telling)
    }
}

/// A registration in the background. Dropping it ends the retries.
#[derive(Debug)]
#[must_use = "dropping it ends the retries"]
pub struct BackgroundRegistration {
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl Drop for BackgroundRegistration {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
    }
}

/// Waits for `pause`. Returns whether the registration was stopped.
fn wait_for_stop((lock, changed): &(Mutex<bool>, Condvar), pause: Duration) -> bool {
    let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = changed.wait_timeout_while(guard, pause, |stops| !*stops);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}
