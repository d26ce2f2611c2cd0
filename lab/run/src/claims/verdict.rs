//! Verdicts.

use serde::{Deserialize, Serialize};

/// What was found of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As the paper says.
    Reproduced,
    /// Beyond what the paper says, on the good side.
    Better,
    /// Otherwise than the paper says.
    Differs,
    /// Not measured, or not well enough to tell.
    NotMeasured,
}

impl Verdict {
    pub(crate) const ALL: [Self; 4] =
        [Self::Reproduced, Self::Better, Self::Differs, Self::NotMeasured];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Better => "better",
            Self::Differs => "differs",
            Self::NotMeasured => "not measured",
        }
    }
}
