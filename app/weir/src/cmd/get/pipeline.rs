//! `--pipeline`: the congestion controllers in this build.

use weir_transport::{ControllerConfig, ControllerError, Controllers};

#[cfg(feature = "lab")]
const CONTROLLERS: Controllers = weir_baselines::controllers::CONTROLLERS;
#[cfg(not(feature = "lab"))]
const CONTROLLERS: Controllers = Controllers::BUILT_IN;

/// Congestion controllers that only a build with the laboratory has.
const LAB_CONTROLLERS: &[&str] = &["icp", "hr-icp", "ictp", "chopcop", "nb-cc", "delay"];

pub(super) fn help() -> String {
    format!(
        "Congestion controller: {}. Constants may follow, as in \"cubic beta=0.8\"",
        Controllers::BUILT_IN_NAMES.join(", "),
    )
}

pub(super) fn parse(text: &str) -> Result<ControllerConfig, String> {
    parse_with(CONTROLLERS, text)
}

fn parse_with(controllers: Controllers, text: &str) -> Result<ControllerConfig, String> {
    controllers.parse(text).map_err(|error| match error {
        ControllerError::Unknown { name, known } if LAB_CONTROLLERS.contains(&&*name) => format!(
            "`{name}` is a controller of the laboratory ({}), and this program was built without \
             it; choose one of {}, or build with `--features lab`",
            LAB_CONTROLLERS.join(", "),
            known.names().join(", "),
        ),
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_lab_controllers_without_lab() {
        let error = parse_with(Controllers::BUILT_IN, "icp eta=2").unwrap_err();
        assert!(error.contains("`icp` is a controller of the laboratory (icp, "), "{error}");
        assert!(error.contains("choose one of cubic, "), "{error}");
        let error = parse_with(Controllers::BUILT_IN, "reno").unwrap_err();
        assert!(error.contains("there is no controller `reno`; choose one of cubic"), "{error}");
    }

    #[cfg(feature = "lab")]
    #[test]
    fn lab_build_accepts_lab_controllers() {
        let mut names = CONTROLLERS.names();
        names.retain(|name| Controllers::BUILT_IN.find(name).is_none());
        assert_eq!(names, LAB_CONTROLLERS);
        assert!(LAB_CONTROLLERS.iter().all(|name| parse(name).is_ok()));
    }
}
