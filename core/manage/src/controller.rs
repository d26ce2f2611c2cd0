//! What a router knows of its controller (specific to Weir).

use alloc::string::String;

use crate::record::record;

record! {
    /// The item of status/controller. There is none without a controller.
    ControllerStatus: DATASET_ITEM, ignores |_| true;
    /// The configured URLs, separated by spaces.
    urls: String = CONTROLLER_URLS "ControllerUrls";
    /// 1 if the controller answered the last request, else 0.
    is_reachable: u64 = CONTROLLER_REACHABLE "ControllerReachable";
    /// Since when it answers each request, in milliseconds since the Unix epoch.
    connected_unix_ms: Option<u64> = CONTROLLER_CONNECTED "ControllerConnected";
    /// When it last accepted a report of this router.
    reported_unix_ms: Option<u64> = CONTROLLER_REPORTED "ControllerReported";
    /// When it last sent or confirmed the configuration.
    confirmed_unix_ms: Option<u64> = CONTROLLER_CONFIRMED "ControllerConfirmed";
    /// Generation of the configuration that is set up; 0 before the first.
    generation: u64 = CONTROLLER_GENERATION "ControllerGeneration";
    /// Why the configuration is not set up completely, or why the controller refuses this router.
    problem: Option<String> = CONTROLLER_PROBLEM "ControllerProblem";
}
