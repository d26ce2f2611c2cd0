//! Texts about signers: who signed, and why a signature is rejected.

use serde_json::{Value, json};
use weir_crypto::UserTrust;
use weir_security::trust::{Advice, ExplainedTrust, Refusal, TrustBasis, TrustedSigner};

/// The trust of a user who fetches objects. Its advice names options of the commands.
pub(crate) type FetchTrust = ExplainedTrust<UserTrust>;

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
            TrustBasis::HicnKey => "hicn-key",
            TrustBasis::Unsigned => "none",
            TrustBasis::Unverified => "unverified",
        },
    })
}

/// As [`explain`], with the options of `weir get`.
pub(crate) fn explain_to_get(refusal: Refusal) -> String {
    match refusal {
        Refusal { reason, advice: Some(Advice::ImportCertificate) } => format!(
            "{reason}. If you know the signer, import its certificate (`weir key import FILE`), or \
             fetch it from another name (--certificate NAME). Otherwise you can accept the data \
             without verification (--accept-unverified)"
        ),
        refusal => explain(refusal),
    }
}

/// The reason of a rejection, with advice.
pub(crate) fn explain(Refusal { reason, advice }: Refusal) -> String {
    let Some(advice) = advice else { return reason };
    match advice {
        Advice::AskProducer => format!(
            "{reason}. The data may be forged: try another router (--router), and ask the producer \
             by other means which key signs it"
        ),
        Advice::AllowUnsigned => format!(
            "{reason}. Ask the producer to sign it, or accept data of unknown origin with \
             --allow-unsigned"
        ),
        Advice::NameAnchors => format!("{reason}. Choose a signer to trust with --trust-anchor"),
        Advice::ImportKey => format!("{reason}; import it first with `weir key import`"),
        Advice::NameHicnKey => format!("{reason}. Name it with --hicn-key FILE"),
        Advice::ImportCertificate => format!(
            "{reason}; if you know the signer, get its certificate and import it with `weir key \
             import FILE`"
        ),
    }
}
