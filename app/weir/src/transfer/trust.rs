//! Words about whose signature is believed.

use serde_json::{Value, json};
use weir_security::trust::{Advice, Refusal, TrustBasis, TrustedSigner};

/// Who signed, for programs.
pub(crate) fn signer_to_json(signer: &TrustedSigner) -> Value {
    json!({
        "name": signer.name.as_ref().map(ToString::to_string),
        "key_sha256": signer.key_digest.map(hex::encode),
        "trust": match signer.basis {
            TrustBasis::Anchor => "anchor",
            TrustBasis::OwnKey => "own",
            TrustBasis::KnownKey => "known",
            TrustBasis::FirstUse => "first-use",
            TrustBasis::SharedKey => "shared",
            TrustBasis::Unsigned => "none",
        },
    })
}

/// Why a signer is not believed, and what to do if it is as it should be.
pub(crate) fn explain(Refusal { reason, advice }: Refusal) -> String {
    let Some(advice) = advice else { return reason };
    match advice {
        Advice::AskProducer => format!(
            "{reason}. It may be forged: get it over another router (--router), and ask its \
             producer, in another way than over this network, who signs it"
        ),
        Advice::AllowUnsigned => format!(
            "{reason}. Ask its producer to sign it; if it does not matter who made it, give \
             --allow-unsigned"
        ),
        Advice::NameAnchors => format!("{reason}. Say whom you trust with --trust-anchor"),
        Advice::ImportKey => format!("{reason}; `weir key import` it first"),
        Advice::ImportCertificate => format!(
            "{reason}; if you know the signer, ask for its certificate and take it in with `weir \
             key import FILE`"
        ),
    }
}
