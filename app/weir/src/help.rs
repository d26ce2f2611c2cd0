//! Headings of options that several commands share. Own options of a command have no heading.

pub(crate) const ROUTER: &str = "Router options";
pub(crate) const KEYS: &str = "Key options";
pub(crate) const TRUST: &str = "Trust options";
pub(crate) const SIGNING: &str = "Signing options";
pub(crate) const TRANSFER: &str = "Transfer options";
pub(crate) const REPOSITORY: &str = "Repository options";
pub(crate) const CONTROLLER: &str = "Controller options";
pub(crate) const LISTENING: &str = "Listening options";
#[cfg(any(feature = "controller", feature = "gateway"))]
pub(crate) const TLS: &str = "TLS options";
pub(crate) const OUTPUT: &str = "Output options";
