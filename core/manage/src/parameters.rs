//! ControlParameters and ControlResponse.

use alloc::{boxed::Box, string::String};

use weir_base::FaceId;
use weir_wire::Name;

use crate::numbers::FacePersistency;
use crate::record::record;

record! {
    /// The arguments of a command, and the effective values in its response (NFD management,
    /// ControlParameters). [`Command`](crate::commands::Command) decides which fields a command may
    /// have.
    ///
    /// Fields may be in any order, and unknown elements are skipped even if they are critical. All
    /// known routers do so, and senders use different orders.
    ControlParameters: CONTROL_PARAMETERS, ignores |_| true;
    /// Prefix.
    name: Option<Name> = NAME "Name";
    /// Face; 0 means the face that the command came from.
    face_id: Option<FaceId> = FACE_ID "FaceId";
    /// Remote FaceUri.
    uri: Option<String> = URI "Uri";
    /// Local FaceUri.
    local_uri: Option<String> = LOCAL_URI "LocalUri";
    /// The origin of a route, see [`route_origin`](crate::route_origin).
    origin: Option<u64> = ORIGIN "Origin";
    /// Cost of a next hop.
    cost: Option<u64> = COST "Cost";
    /// Capacity of the content store in packets, see
    /// [`STORE_PACKET_BYTES`](crate::STORE_PACKET_BYTES).
    capacity: Option<u64> = CAPACITY "Capacity";
    /// Number of Data packets.
    count: Option<u64> = COUNT "Count";
    /// Flag values.
    flags: Option<u64> = FLAGS "Flags";
    /// Which of the flag bits to change.
    mask: Option<u64> = MASK "Mask";
    strategy: Option<Name> = STRATEGY "Strategy";
    /// Time until a route expires, in milliseconds.
    expiration_period_ms: Option<u64> = EXPIRATION_PERIOD "ExpirationPeriod";
    /// When a face closes.
    face_persistency: Option<FacePersistency> = FACE_PERSISTENCY "FacePersistency";
    /// Base interval between congestion marks, in nanoseconds.
    base_congestion_marking_interval_ns: Option<u64> =
        BASE_CONGESTION_MARKING_INTERVAL "BaseCongestionMarkingInterval";
    /// Queue size from which on packets are marked, in octets.
    default_congestion_threshold_bytes: Option<u64> =
        DEFAULT_CONGESTION_THRESHOLD "DefaultCongestionThreshold";
    /// Largest frame of a face, in octets.
    mtu: Option<u64> = MTU "Mtu";
}

impl ControlParameters {
    /// Whether a command turns flag `bit` (a mask) on (`Some(true)`) or off; `None` leaves it
    /// unchanged.
    pub(crate) fn flag(&self, bit: u64) -> Option<bool> {
        (self.mask.unwrap_or(0) & bit != 0).then(|| self.flags.unwrap_or(0) & bit != 0)
    }
}

record! {
    /// The answer to a command, or to a refused request for a dataset (NFD management,
    /// ControlResponse).
    ControlResponse: CONTROL_RESPONSE;
    /// 200 for success, otherwise as in HTTP.
    code: u64 = STATUS_CODE "StatusCode";
    /// The text for users.
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
