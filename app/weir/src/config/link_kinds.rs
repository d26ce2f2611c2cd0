//! Parses marking policies and queue disciplines. Those from papers are for experiments and exist
//! only in a build with the laboratory.

use weir_runtime::{ChoiceError, DisciplineConfig, MarkingPolicy};

#[cfg(feature = "lab")]
use weir_baselines::links::{DISCIPLINES, MARKERS};

#[cfg(not(feature = "lab"))]
const DISCIPLINES: &[weir_runtime::DisciplineKind] = &[];
#[cfg(not(feature = "lab"))]
const MARKERS: &[weir_runtime::MarkerKind] = &[];

/// The policies and disciplines that need the laboratory.
const LAB_NAMES: [&str; 4] = ["hr-icp", "interest-rate", "rem", "step"];

pub(super) fn read_marking(text: &str) -> Result<MarkingPolicy, String> {
    MarkingPolicy::read(text, MARKERS).map_err(explain_missing_lab)
}

pub(super) fn read_discipline(text: &str) -> Result<DisciplineConfig, String> {
    DisciplineConfig::read(text, DISCIPLINES).map_err(explain_missing_lab)
}

fn explain_missing_lab(error: ChoiceError) -> String {
    match error {
        ChoiceError::Unknown { kind, name, names } if LAB_NAMES.contains(&name.as_str()) => {
            format!(
                "the {kind} `{name}` needs the laboratory, and this program was built without it; \
             choose one of {}, or build weir with `--features lab`",
                names.join(", ")
            )
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build with the laboratory accepts each of [`LAB_NAMES`]. Other builds explain the error.
    #[test]
    fn lab_names_need_the_lab_build() {
        let read = |name: &str| match name {
            "hr-icp" | "interest-rate" => read_discipline(name).map(drop),
            _ => read_marking(name).map(drop),
        };
        for name in LAB_NAMES {
            let result = read(name);
            assert_eq!(result.is_ok(), cfg!(feature = "lab"), "{name}: {result:?}");
            let error = result.err().unwrap_or_default();
            for part in [name, "needs the laboratory", "--features lab"] {
                assert!(error.is_empty() || error.contains(part), "{error}");
            }
        }
        assert!(!read_marking("red").unwrap_err().contains("laboratory"));
        #[cfg(feature = "lab")]
        assert_eq!(DISCIPLINES.len() + MARKERS.len(), LAB_NAMES.len());
    }
}
