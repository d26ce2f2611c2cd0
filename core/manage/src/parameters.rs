//! ControlParameters and ControlResponse.

use alloc::{boxed::Box, string::String};

use weir_base::FaceId;
use weir_wire::Name;

use crate::numbers::FacePersistency;
use crate::record::record;

record! {
    /// The arguments of a command, and the effective values in its response (NFD management,
    /// ControlParameters). Which fields a command may carry is
    /// [`Command`](crate::commands::Command)'s business.
    ///
    /// They are decoded in any order, and unknown elements are skipped even when critical: so does
    /// every known router, and senders differ in the order they use.
    ControlParameters: CONTROL_PARAMETERS, ignores |_| true;
    /// Prefix.
    name: Option<Name> = NAME "Name";
    /// Face; 0 means the face the command came from.
    face_id: Option<FaceId> = FACE_ID "FaceId";
    /// Remote FaceUri.
    uri: Option<String> = URI "Uri";
    /// Local FaceUri.
    local_uri: Option<String> = LOCAL_URI "LocalUri";
    /// Who made a route, see [`route_origin`](crate::route_origin).
    origin: Option<u64> = ORIGIN "Origin";
    /// Cost of a next hop.
    cost: Option<u64> = COST "Cost";
    /// Capacity of the content store in packets, see
    /// [`STORE_PACKET_BYTES`](crate::STORE_PACKET_BYTES).
    capacity: Option<u64> = CAPACITY "Capacity";
    /// Number of Data.
    count: Option<u64> = COUNT "Count";
    /// Flag values.
    flags: Option<u64> = FLAGS "Flags";
    /// Which of the flag bits to change.
    mask: Option<u64> = MASK "Mask";
    /// Strategy name.
    strategy: Option<Name> = STRATEGY "Strategy";
    /// Time until a route goes, in milliseconds.
    expiration_period_ms: Option<u64> = EXPIRATION_PERIOD "ExpirationPeriod";
    /// When a face closes.
    face_persistency: Option<FacePersistency> = FACE_PERSISTENCY "FacePersistency";
    /// Base interval between congestion marks, in nanoseconds.
    base_congestion_marking_interval_ns: Option<u64> =
        BASE_CONGESTION_MARKING_INTERVAL "BaseCongestionMarkingInterval";
    /// Queue from which marking starts, in octets.
    default_congestion_threshold_bytes: Option<u64> =
        DEFAULT_CONGESTION_THRESHOLD "DefaultCongestionThreshold";
    /// Largest frame of a face, in octets.
    mtu: Option<u64> = MTU "Mtu";
}

impl ControlParameters {
    /// Whether a command asks for flag `bit` (a mask) to be on (`Some(true)`), off, or leaves it.
    pub(crate) fn flag(&self, bit: u64) -> Option<bool> {
        (self.mask.unwrap_or(0) & bit != 0).then(|| self.flags.unwrap_or(0) & bit != 0)
    }
}

record! {
    /// The answer to a command, or to a dataset request that is refused (NFD management,
    /// ControlResponse).
    ControlResponse: CONTROL_RESPONSE;
    /// 200 for success, else as HTTP has it.
    code: u64 = STATUS_CODE "StatusCode";
    /// For people.
    text: String = STATUS_TEXT "StatusText";
    /// Effective values.
    body: Option<Box<ControlParameters>> = CONTROL_PARAMETERS "ControlParameters";
}

impl ControlResponse {
    /// Without a body.
    pub fn new(code: u64, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), body: None }
    }

    /// `200 OK` with the effective values.
    pub fn ok(body: ControlParameters) -> Self {
        Self { code: 200, text: String::from("OK"), body: Some(Box::new(body)) }
    }

    /// Adds a body.
    #[must_use]
    pub(crate) fn with_body(self, body: ControlParameters) -> Self {
        Self { body: Some(Box::new(body)), ..self }
    }
}
