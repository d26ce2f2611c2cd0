//! The options that select a controller and authenticate with it.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use weir_agent::{Access, AgentError, Files};

use crate::help::CONTROLLER;
use crate::table::printable;

/// The address of a controller, and the token and certificates for it.
#[derive(clap::Args)]
#[command(next_help_heading = CONTROLLER)]
pub(crate) struct ControllerArgs {
    /// Register large files with the controller at this URL, such as http://127.0.0.1:8636, so that
    /// routers can store parts of them. Repeat the option for several controllers that share a
    /// database; the first that answers is used [default: none]
    #[arg(long = "controller", value_name = "URL")]
    url: Vec<String>,
    /// Read the token for the controller from this file. Its role must be producer or operator
    #[arg(long = "controller-token-file", value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Verify the controller with the CA certificates in this PEM file; required for https
    #[arg(long = "controller-ca", value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// Your client certificate (PEM), for a controller that requires one
    #[arg(
        long = "controller-cert",
        value_name = "FILE",
        requires = "url",
        requires = "controller_key"
    )]
    certificate: Option<PathBuf>,
    /// The private key (PEM) of the client certificate
    #[arg(long = "controller-key", value_name = "FILE", requires = "certificate")]
    controller_key: Option<PathBuf>,
    /// Allow http:// to another machine, which sends the token unencrypted. Use it only in a
    /// trusted network or behind a TLS proxy
    #[arg(long = "controller-insecure", requires = "url")]
    insecure: bool,
}

impl ControllerArgs {
    /// Opens the controller, or returns `None` without `--controller`.
    pub(crate) fn files(&self) -> anyhow::Result<Option<Files>> {
        let Some((url, others)) = self.url.split_first() else { return Ok(None) };
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
            others: others.to_vec(),
            token: token.map(|token| token.trim().to_owned()),
            token_file: self.token_file.clone(),
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
