//! The signers that a gateway trusts: those of `weir get`.

use std::path::PathBuf;

use anyhow::Context;
use weir_crypto::UserTrust;
use weir_wire::Name;

use crate::transfer::KeyArgs;
use crate::transfer::trust::{FetchTrust, explain};

/// Reads the user's settings.
pub(super) fn user_trust(
    keys: &KeyArgs,
    anchors: &[PathBuf],
    allow_unsigned: bool,
) -> anyhow::Result<FetchTrust> {
    // Without a home directory there are no keys, and only digests can be verified.
    let chain = keys.key_chain().ok();
    let mut trust = UserTrust::new(Name::new(), chain, anchors)
        .context("trust anchors are certificate files, as written by `weir key export`")?;
    if allow_unsigned {
        trust.policy().allow_unsigned();
    }
    Ok(FetchTrust::new(trust, explain))
}

/// The same settings for other names, whose first signer may be another one.
pub(super) fn for_names_below(trust: &FetchTrust, root: &Name) -> FetchTrust {
    FetchTrust::new(trust.inner.for_names_below(root.clone()), explain)
}
