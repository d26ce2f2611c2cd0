//! Where a controller is that is asked or told of something, as flags.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use weir_agent::{Access, AgentError, Files};

use crate::table::printable;

/// Which controller, and who believes whom by what.
#[derive(clap::Args)]
pub(crate) struct ControllerArgs {
    /// Tell this controller of the files, such as http://127.0.0.1:8636: it has those that no store
    /// holds kept in parts. Several that share a database, in the order in which they are asked:
    /// once for each
    #[arg(long = "controller", value_name = "URL")]
    url: Vec<String>,
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
