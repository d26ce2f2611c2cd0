//! Tells a controller of what is served.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use weir_agent::{Access, Adding, AgentError, FileRefused, Files, FilesEvent};
use weir_control::File;
use weir_socket::Published;

use crate::table::{errln, printable};

/// Objects of fewer segments go as without a controller.
const SEGMENTS_MIN: u64 = 65;

/// Which controller is told.
#[derive(clap::Args)]
pub(super) struct ControllerArgs {
    /// Tell this controller of the files, such as http://127.0.0.1:8636: it has those that no store
    /// holds kept in parts
    #[arg(long = "controller", value_name = "URL")]
    url: Option<String>,
    /// A file with the token for it, of role producer or operator
    #[arg(long = "controller-token-file", value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// A PEM file with the certificates by which it is believed; needed for https
    #[arg(long = "controller-ca", value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// A PEM file with your own certificate, for a controller that asks for one
    #[arg(
        long = "controller-cert",
        value_name = "FILE",
        requires = "url",
        requires = "controller_key"
    )]
    certificate: Option<PathBuf>,
    /// A PEM file with the private key of that certificate
    #[arg(long = "controller-key", value_name = "FILE", requires = "certificate")]
    controller_key: Option<PathBuf>,
    /// Send the token as plain text beyond this machine: the network is trusted, or TLS ends
    /// elsewhere
    #[arg(long = "controller-insecure", requires = "url")]
    insecure: bool,
}

impl ControllerArgs {
    /// The controller, if one is to be told.
    pub(super) fn files(&self) -> anyhow::Result<Option<Files>> {
        let Some(url) = &self.url else { return Ok(None) };
        let read = |path: &PathBuf| {
            fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", printable(path.display())))
        };
        let pem = |path: &Option<PathBuf>| {
            path.as_ref().map(read).transpose().map(|text| text.map(String::into_bytes))
        };
        let token = self.token_file.as_ref().map(read).transpose()?;
        let access = Access {
            url: url.clone(),
            token: token.map(|token| token.trim().to_owned()),
            ca_pem: pem(&self.ca)?,
            certificate_pem: pem(&self.certificate)?,
            key_pem: pem(&self.controller_key)?,
            insecure: self.insecure,
        };
        Files::new(&access).map(Some).map_err(|error| {
            let hint = match error {
                AgentError::PlainToken(_) => " (--controller-insecure)",
                AgentError::NoCertificates => " (--controller-ca)",
                _ => "",
            };
            anyhow::anyhow!("--controller: {error}{hint}")
        })
    }
}

/// Tells of all large objects, while they are served. What the controller does not take is served
/// all the same. It is told of no end: what routers keep outlives who made it.
pub(super) fn register(files: &Files, objects: &[Published]) -> anyhow::Result<Adding> {
    let large = objects.iter().filter(|object| object.segments() >= SEGMENTS_MIN);
    let file = |object: &Published| File {
        name: object.versioned().clone(),
        segments: object.segments(),
        size_bytes: object.size_bytes(),
        packet_bytes: object.packet_bytes(),
    };
    let mut is_late = false;
    let tell = move |event| match event {
        FilesEvent::Refused(FileRefused { name, error }) => {
            errln!("weir: the controller does not take {name}: {error}; it is served without");
        }
        FilesEvent::Waiting(error) => {
            is_late = true;
            errln!("weir: the controller is not told yet: {error}; trying again while serving");
        }
        FilesEvent::Failed(error) => {
            errln!("weir: the controller is not told: {error}; all is served without");
        }
        FilesEvent::Done if is_late => errln!("weir: the controller has been told"),
        FilesEvent::Done => {}
    };
    files.add_in_background(large.map(file).collect(), tell).context("cannot tell the controller")
}
