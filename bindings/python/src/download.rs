//! Downloads into files, like `weir get`: a file appears only when complete, and an interrupted
//! download continues.

use std::path::PathBuf;

use pyo3::exceptions::PyIsADirectoryError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir_client::Client;
use weir_security::trust::Trust;
use weir_socket::{
    DownloadError, DownloadHost, DownloadId, DownloadOptions, Found, Output, PartFile, Summary,
};
use weir_transport::{Metadata, Target};
use weir_wire::Name;

use crate::consumer::{PythonTrust, Trusted, trust_for, trust_settings};
use crate::{errors, options, sessions};

/// The download of one object into one file.
struct OneFile {
    target: Option<Target>,
    path: PathBuf,
    trust: PythonTrust,
    /// Whether packets are accepted that anyone can make.
    may_be_unverified: bool,
    /// Set if the object is a directory.
    directory: Option<Metadata>,
    summary: Option<Result<Summary, DownloadError>>,
    /// The exception that a signal handler has raised.
    raised: Option<PyErr>,
}

impl DownloadHost for OneFile {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        self.target.take().map(|target| (DownloadId(0), target))
    }

    fn output(&mut self, _id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String> {
        if found.metadata.is_directory() {
            self.directory = Some(found.metadata.clone());
            return Err("it is a directory".into());
        }
        let file = PartFile::new(&self.path);
        Ok(Box::new(if self.may_be_unverified { file.accept_unverified() } else { file }))
    }

    fn on_ended(
        &mut self,
        _id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        self.summary = Some(result);
        Ok(())
    }

    fn trust(&mut self, _id: DownloadId) -> &mut dyn Trust {
        &mut self.trust
    }

    fn progress(&mut self, _octets: u64) -> bool {
        if self.raised.is_none() {
            self.raised = Python::attach(|py| py.check_signals()).err();
        }
        self.raised.is_none()
    }
}

fn target_of(name: Name, allow_stored: bool) -> Target {
    match name.as_view().last().is_some_and(|last| last.as_version().is_some()) {
        true => Target::Version { versioned: name },
        false => Target::Latest { object: name, allow_stored },
    }
}

/// Downloads an object into a file. Returns the name of the version, and the number of bytes
/// fetched now, without those of an earlier attempt. IsADirectoryError: the object is a directory.
#[pyfunction]
#[pyo3(signature = (name, path, router, trusted, options))]
pub(crate) fn download(
    name: &str,
    path: PathBuf,
    router: Option<&str>,
    trusted: Trusted,
    options: &Bound<'_, PyDict>,
) -> PyResult<(String, u64)> {
    let py = options.py();
    let name = sessions::name_of(name)?;
    let options = options::for_consumer(Some(options))?;
    let settings = trust_settings(trusted);
    let trust = trust_for(py, &name, &settings)?;
    let may_be_unverified = settings.may_be_unverified();
    let uri = py.detach(|| weir_binding::router_of(router)).map_err(errors::of_socket)?;
    let target = Some(target_of(name.clone(), options.stored));
    let (directory, summary, raised) = (None, None, None);
    let mut file = OneFile { target, path, trust, may_be_unverified, directory, summary, raised };
    let fetch = DownloadOptions { fetch: options.config(), ..DownloadOptions::default() };
    let result = py.detach(|| {
        let mut client = Client::connect(&uri)?;
        let result = weir_socket::download(&mut client, fetch.clone(), &mut file);
        if !matches!(file.summary, Some(Err(DownloadError::OtherSigner))) {
            return result;
        }
        // What an earlier attempt has stored was discarded.
        (file.target, file.summary) = (Some(target_of(name, options.stored)), None);
        weir_socket::download(&mut client, fetch, &mut file)
    });
    if let Some(raised) = file.raised {
        return Err(raised);
    }
    if let Some(directory) = file.directory {
        return Err(PyIsADirectoryError::new_err(directory.versioned.to_string()));
    }
    result.map_err(errors::of_download)?;
    let summary = match file.summary {
        Some(summary) => summary.map_err(errors::of_download)?,
        None => return Err(errors::closed("the download")),
    };
    py.detach(|| file.trust.inner.remember());
    Ok((summary.versioned.to_string(), summary.octets))
}
