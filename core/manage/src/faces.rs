//! The module `faces` of NFD's management protocol: the known faces, and checks of commands.

use alloc::collections::BTreeMap;
use alloc::string::String;

use weir_base::FaceId;

use crate::face_uri::{self, UriForm};
use crate::io::{Action, FaceChanges, FaceError, FaceRequest};
use crate::numbers::{FacePersistency, FaceScope, LinkType, face_flags};
use crate::parameters::{ControlParameters, ControlResponse};
use crate::status::FaceInfo;
use crate::transactions::{Outcome, Task};

/// Smallest MTU that a command may set (NFD).
const MTU_MIN: u64 = 64;

/// The faces of the router, as the driver has reported them.
#[derive(Debug, Default)]
pub(crate) struct FaceTable {
    faces: BTreeMap<FaceId, FaceInfo>,
}

impl FaceTable {
    pub(crate) fn len(&self) -> usize {
        self.faces.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FaceInfo> {
        self.faces.values()
    }

    /// Whether a route may lead to this face.
    pub(crate) fn contains(&self, face: FaceId) -> bool {
        matches!(face, FaceId::INTERNAL | FaceId::NULL) || self.faces.contains_key(&face)
    }

    /// Whether the face leads to a program of this host.
    pub(crate) fn is_local(&self, face: FaceId) -> bool {
        self.faces.get(&face).is_some_and(|info| info.scope == FaceScope::Local)
    }

    pub(crate) fn link_type(&self, face: FaceId) -> Option<LinkType> {
        self.faces.get(&face).map(|info| info.link_type)
    }

    pub(crate) fn insert(&mut self, info: FaceInfo) {
        self.faces.insert(info.face_id, info);
    }

    /// Replaces the description of a face, unless it has closed.
    pub(crate) fn replace(&mut self, info: &FaceInfo) {
        if let Some(known) = self.faces.get_mut(&info.face_id) {
            known.clone_from(info);
        }
    }

    pub(crate) fn remove(&mut self, face: FaceId) {
        self.faces.remove(&face);
    }

    /// faces/create.
    pub(crate) fn create(&self, parameters: &ControlParameters) -> Outcome {
        let wanted = match check_create(parameters) {
            Ok(wanted) => wanted,
            Err(refusal) => return Outcome::Reply(refusal),
        };
        // An on-demand face, which the peer opened, may use another local address. Only the driver
        // knows whether it is the same face.
        let is_same = |face: &&FaceInfo| {
            face.uri == wanted.uri && face.persistency != FacePersistency::OnDemand
        };
        match self.faces.values().find(is_same) {
            Some(face) => Outcome::Reply(already_exists(face)),
            None => Outcome::Task(Task::CreateFace(wanted)),
        }
    }

    /// faces/update: changes the face in the parameters, or the command's ingress face if there is
    /// none.
    pub(crate) fn update(&self, ingress: FaceId, parameters: &ControlParameters) -> Outcome {
        let face = parameters.face_id.filter(|face| *face != FaceId::INVALID).unwrap_or(ingress);
        let Some(info) = self.faces.get(&face) else {
            return Outcome::refuse(404, "Specified face does not exist");
        };
        if let Some(bad) = bad_update(info, parameters) {
            let response = ControlResponse::new(409, "Invalid properties specified").with_body(bad);
            return Outcome::Reply(response);
        }
        Outcome::Task(Task::UpdateFace { face, changes: changes(parameters) })
    }

    /// faces/destroy: the action for the driver, if there is such a face.
    ///
    /// # Errors
    /// The refusal for a face that exists as long as the router.
    pub(crate) fn destroy(
        &self,
        parameters: &ControlParameters,
    ) -> Result<Option<Action>, ControlResponse> {
        match parameters.face_id {
            Some(FaceId::INTERNAL | FaceId::CONTENT_STORE | FaceId::NULL) => {
                Err(ControlResponse::new(406, "The router's own faces cannot be closed"))
            }
            Some(face) if self.faces.contains_key(&face) => Ok(Some(Action::DestroyFace { face })),
            _ => Ok(None),
        }
    }
}

/// The answer to faces/create when the driver has finished.
pub(crate) fn created(result: Result<FaceInfo, FaceError>) -> ControlResponse {
    result.map_or_else(refusal, |info| ControlResponse::ok(created_body(&info)))
}

/// The answer to faces/update when the driver has finished.
pub(crate) fn updated(result: Result<FaceInfo, FaceError>) -> ControlResponse {
    result.map_or_else(refusal, |info| ControlResponse::ok(updated_body(&info)))
}

/// The face that faces/create requests, or the reason to refuse it at once (NFD, face factories).
fn check_create(parameters: &ControlParameters) -> Result<FaceRequest, ControlResponse> {
    let refuse = |code, text: &str| Err(ControlResponse::new(code, text));
    let uri = parameters.uri.clone().unwrap_or_default();
    // Clients of NFD resolve host names themselves, and NFD refuses all other forms. ndnd accepts
    // what its users write, so the driver resolves it.
    let is_canonical = match face_uri::form(&uri) {
        UriForm::Malformed => return refuse(400, "Malformed command"),
        UriForm::NonCanonical => false,
        UriForm::Canonical => true,
    };
    match parameters.local_uri.as_deref().map(face_uri::form) {
        Some(UriForm::Malformed) => return refuse(400, "Malformed command"),
        Some(UriForm::NonCanonical) => return refuse(400, "Non-canonical local URI"),
        Some(UriForm::Canonical) | None => {}
    }
    let (transport, is_stream) = match face_uri::scheme(&uri) {
        "udp" | "udp4" | "udp6" | "hicn+udp" | "hicn+udp4" | "hicn+udp6" => ("UDP", false),
        "hicn+tun" if is_canonical => ("TUN", false),
        "tcp" | "tcp4" | "tcp6" => ("TCP", true),
        // NFD has no outgoing WebSockets.
        "ws" | "wss" => ("WebSocket", true),
        _ if !is_canonical => return refuse(400, "Non-canonical remote URI"),
        _ => return refuse(406, "Unsupported protocol"),
    };
    let refuse_text = |text: String| Err(ControlResponse::new(406, text));
    if parameters.local_uri.is_some() {
        let text = alloc::format!("Unicast {transport} faces cannot be created with a LocalUri");
        return refuse_text(text);
    }
    let persistency = parameters.face_persistency.unwrap_or_default();
    if persistency == FacePersistency::OnDemand {
        let text =
            alloc::format!("Outgoing {transport} faces do not support on-demand persistency");
        return refuse_text(text);
    }
    if face_uri::is_multicast(&uri) {
        return refuse(406, "Cannot create multicast UDP faces");
    }
    if face_uri::is_broadcast(&uri) {
        return refuse(406, "A face has one peer, and 255.255.255.255 is the address of all");
    }
    // Local fields are for programs on this host, so the peer's address must be a loopback address.
    // The driver checks the address of a host name.
    let wants_local_fields = parameters.flag(face_flags::LOCAL_FIELDS) == Some(true);
    if wants_local_fields && !(is_stream && (!is_canonical || face_uri::is_loopback(&uri))) {
        return refuse(406, "Local fields can only be enabled on faces with local scope");
    }
    match parameters.mtu {
        Some(_) if is_stream => {
            return refuse_text(alloc::format!("{transport} faces do not support MTU overrides"));
        }
        Some(mtu) if mtu < MTU_MIN => {
            return refuse_text(alloc::format!("Override MTU cannot be less than {MTU_MIN}"));
        }
        _ => {}
    }
    let changes = FaceChanges { persistency: None, ..changes(parameters) };
    Ok(FaceRequest { uri, local_uri: None, persistency, changes })
}

fn changes(parameters: &ControlParameters) -> FaceChanges {
    FaceChanges {
        persistency: parameters.face_persistency,
        mtu: parameters.mtu,
        local_fields: parameters.flag(face_flags::LOCAL_FIELDS),
        reliability: parameters.flag(face_flags::LP_RELIABILITY),
        congestion_marking: parameters.flag(face_flags::CONGESTION_MARKING),
        base_congestion_marking_interval_ns: parameters.base_congestion_marking_interval_ns,
        default_congestion_threshold_bytes: parameters.default_congestion_threshold_bytes,
    }
}

/// The fields of faces/update that this face does not support, if there are any.
fn bad_update(face: &FaceInfo, parameters: &ControlParameters) -> Option<ControlParameters> {
    let mut bad = ControlParameters::default();
    let scheme = face_uri::scheme(&face.uri);
    let is_ndn_datagram = matches!(scheme, "udp4" | "udp6" | "ether");
    let is_datagram = is_ndn_datagram || matches!(scheme, "hicn+udp4" | "hicn+udp6" | "hicn+tun");
    let mut bad_flags = 0;
    for (flag, is_possible) in [
        (face_flags::LOCAL_FIELDS, face.scope == FaceScope::Local),
        // Reliability is between two nodes.
        (face_flags::LP_RELIABILITY, is_ndn_datagram && !face_uri::is_multicast(&face.uri)),
    ] {
        if parameters.flag(flag) == Some(true) && !is_possible {
            bad_flags |= flag;
        }
    }
    if bad_flags != 0 {
        (bad.flags, bad.mask) = (Some(bad_flags), Some(bad_flags));
    }
    // Unicast UDP, TCP and outgoing WebSocket faces accept any persistency. Unix sockets accept all
    // but on-demand.
    bad.face_persistency = parameters.face_persistency.filter(|wanted| {
        *wanted != face.persistency
            && match scheme {
                "udp4" | "udp6" | "hicn+udp4" | "hicn+udp6" | "tcp4" | "tcp6" | "ws" | "wss" => {
                    face_uri::is_multicast(&face.uri)
                }
                "unix" | "fd" => *wanted != FacePersistency::OnDemand,
                "hicn+tun" => *wanted == FacePersistency::OnDemand,
                _ => true,
            }
    });
    bad.mtu = parameters.mtu.filter(|mtu| !is_datagram || *mtu < MTU_MIN);
    (bad != ControlParameters::default()).then_some(bad)
}

fn updated_body(face: &FaceInfo) -> ControlParameters {
    ControlParameters {
        face_id: Some(face.face_id),
        face_persistency: Some(face.persistency),
        flags: Some(face.flags),
        mtu: face.mtu,
        base_congestion_marking_interval_ns: face.base_congestion_marking_interval_ns,
        default_congestion_threshold_bytes: face.default_congestion_threshold_bytes,
        ..ControlParameters::default()
    }
}

fn created_body(face: &FaceInfo) -> ControlParameters {
    ControlParameters {
        uri: Some(face.uri.clone()),
        local_uri: Some(face.local_uri.clone()),
        ..updated_body(face)
    }
}

fn already_exists(face: &FaceInfo) -> ControlResponse {
    ControlResponse::new(409, "Face with remote URI already exists").with_body(created_body(face))
}

fn refusal(error: FaceError) -> ControlResponse {
    match error {
        FaceError::Exists(face) => already_exists(&face),
        FaceError::NotFound => ControlResponse::new(404, "Specified face does not exist"),
        FaceError::Unsupported(reason) => ControlResponse::new(406, reason),
        FaceError::ConnectFailed(reason) => ControlResponse::new(504, reason),
        FaceError::Internal(reason) => ControlResponse::new(500, reason),
    }
}
