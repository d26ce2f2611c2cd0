//! Words about whose signature is believed.

use serde_json::{Value, json};
use weir_security::trust::{Advice, Believed, Ground, Refusal};

/// Who signed, for programs.
pub(crate) fn signer_to_json(signer: &Believed) -> Value {
    json!({
        "name": signer.name.as_ref().map(ToString::to_string),
        "key_sha256": signer.key_digest.map(hex::encode),
        "trust": match signer.ground {
            Ground::Anchor => "anchor",
            Ground::Own => "own",
            Ground::Known => "known",
            Ground::FirstUse => "first-use",
            Ground::Shared => "shared",
            Ground::Unsigned => "none",
        },
    })
}

/// Why a signer is not believed, and what to do if it is as it should be.
pub(crate) fn explain(Refusal { reason, advice }: Refusal) -> String {
    let Some(advice) = advice else { return reason };
    match advice {
        Advice::Forget(prefix) => {
            format!("{reason}. If that is as it should be, run `weir key trust forget {prefix}`")
        }
        Advice::ForgetOldKey(prefix) => format!(
            "{reason}. If the producer told you of a new key, run `weir key trust forget {prefix}` \
             and get it again"
        ),
        Advice::TrustSigner => format!(
            "{reason}. If you trust its signer too, run `weir key trust FILE` with its certificate"
        ),
        Advice::NameAnchors => format!("{reason}. Say whom you trust with --trust-anchor"),
        Advice::ImportKey => format!("{reason}; `weir key import` it first"),
        Advice::ImportCertificate => format!(
            "{reason}; if you know the signer, ask for its certificate and take it in with `weir \
             key import FILE`"
        ),
    }
}
