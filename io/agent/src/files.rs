//! Files that a producer tells a controller of.

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

/// Files of one request: as many as a controller takes.
const LIST_MAX: usize = 1000;

/// A controller, as a producer sees it: it plans for the files that it is told of.
#[derive(Clone, Debug)]
pub struct Files {
    http: ControllerClient,
}

/// Why a controller does not take files.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FileError(#[from] RestError);

impl FileError {
    /// The status by which the controller refuses; none if it does not answer.
    pub fn status(&self) -> Option<u16> {
        match self.0 {
            RestError::Refused { status, .. } => Some(status),
            RestError::Unreachable(_) | RestError::BadAnswer(_) => None,
        }
    }
}

/// A file that a controller knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredFile {
    /// The name of its segments without the segment number, with the version.
    pub name: Name,
    pub segments: u64,
    pub size_bytes: u64,
    /// Role and name of the token by which it was registered.
    pub owner: String,
    /// The newest version of it that its owner has registered, if it is not this one: routers are
    /// told to keep that one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer: Option<Name>,
}

/// A file that a controller refuses, while it takes others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FileRefused {
    pub name: Name,
    /// Why, in the controller's words.
    pub error: String,
}

/// What becomes of files that are told of in the background.
#[derive(Debug)]
pub enum FilesEvent {
    /// The controller refuses this one, for good.
    Refused(FileRefused),
    /// It does not answer, or has no room for now: it is tried again. Told once.
    Waiting(FileError),
    /// It refuses all of them, for good.
    Failed(FileError),
    /// It has been told of all.
    Done,
}

impl Files {
    /// The files of one controller.
    ///
    /// # Errors
    /// The address or the certificates cannot be used, or the token would travel as plain text.
    /// Nothing is sent yet.
    pub fn new(access: &Access) -> Result<Self, AgentError> {
        Ok(Self { http: ControllerClient::new(access)? })
    }

    /// Tells of files, in one request for each thousand; those that the controller does not take.
    /// The same again is no error.
    pub fn add(&self, files: &[File]) -> Result<Vec<FileRefused>, FileError> {
        let mut refused = Vec::new();
        for files in files.chunks(LIST_MAX) {
            let octets = self.http.post("/v1/files/list", &files)?;
            refused.extend(parse_answer::<Vec<FileRefused>>(octets)?);
        }
        Ok(refused)
    }

    /// The files that the controller knows, in the order of their names.
    pub fn list(&self) -> Result<Vec<RegisteredFile>, FileError> {
        let mut files: Vec<RegisteredFile> = Vec::new();
        loop {
            let after = files.last().map(|file| file.name.to_string());
            let after = after.as_ref().map(|after| ("after", after.as_str()));
            let octets = self.http.get("/v1/files", after, Duration::ZERO)?;
            let next: Vec<RegisteredFile> = parse_answer(octets)?;
            // How many one answer has is the controller's to say.
            if next.is_empty() {
                return Ok(files);
            }
            files.extend(next);
        }
    }

    /// Tells that a file is served no more. Says whether the controller knew it.
    pub fn withdraw(&self, name: &Name) -> Result<bool, FileError> {
        match self.http.delete("/v1/files", "name", &name.to_string()) {
            Ok(_) => Ok(true),
            Err(error) if error.is_unknown() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What the controller does not let it withdraw.
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

    /// Tells of files that are served no more, and then of others that are, in a thread of its own,
    /// again and again with growing waits until the controller has answered, and `report_thread`s what
    /// becomes of them.
    pub fn register_in_background(
        &self,
        files: Vec<File>,
        withdrawn: Vec<Name>,
        mut tell: impl FnMut(FilesEvent) + Send + 'static,
    ) -> io::Result<BackgroundRegistration> {
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let (telling, this) = (BackgroundRegistration { stop: Arc::clone(&stop) }, self.clone());
        let mut backoff = RetryWaits::new(getrandom::u64().map_err(io::Error::other)?);
        std::thread::Builder::new().name("weir-files".into()).spawn(move || {
            loop {
                let all = this.withdraw_all(&withdrawn).and_then(|mut refused| {
                    refused.append(&mut this.add(&files)?);
                    Ok(refused)
                });
                let FileError(error) = match all {
                    Ok(refused) => {
                        refused.into_iter().map(FilesEvent::Refused).for_each(&mut tell);
                        return tell(FilesEvent::Done);
                    }
                    Err(error) => error,
                };
                if !error.is_transient() {
                    return tell(FilesEvent::Failed(error.into()));
                }
                let pause = backoff.next(error.retry_after());
                if backoff.is_first() {
                    tell(FilesEvent::Waiting(error.into()));
                }
                if wait_for_stop(&stop, pause) {
                    return;
                }
            }
        })?;
        Ok(telling)
    }
}

/// A controller is told of files in the background, until this is dropped.
#[derive(Debug)]
#[must_use = "when it is dropped, no more is tried"]
pub struct BackgroundRegistration {
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl Drop for BackgroundRegistration {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
    }
}

/// Waits; whether no more is to be tried.
fn wait_for_stop((lock, changed): &(Mutex<bool>, Condvar), pause: Duration) -> bool {
    let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = changed.wait_timeout_while(guard, pause, |stops| !*stops);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}
