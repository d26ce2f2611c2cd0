//! A manager with a clock, a few faces and a client.

use weir_base::{FaceId, Instant, NS_PER_MS, Packet};
use weir_manage::commands::{self, Command, Scope};
use weir_manage::{
    Action, ControlParameters, ControlResponse, Element, FaceEventKind, FaceInfo, FacePersistency,
    FaceScope, LinkType, Manager, ManagerConfig, ManagerInput, ManagerOutbox, Sender, face_flags,
};
use weir_security::{DigestSigner, Signer};
use weir_wire::{DataView, Name, PACKET_SIZE_MAX};

pub(crate) const UNIX_MS: u64 = 1_800_000_000_000;
/// The local face that commands come from.
pub(crate) const CLIENT: FaceId = FaceId(256);
/// A face to another host.
pub(crate) const PEER: FaceId = FaceId(262);

pub(crate) fn name(uri: &str) -> Name {
    uri.parse().unwrap_or_else(|_| panic!("{uri} is no name"))
}

pub(crate) fn face(id: FaceId, uri: &str, scope: FaceScope) -> FaceInfo {
    FaceInfo {
        face_id: id,
        uri: uri.to_owned(),
        local_uri: "unix:///run/nfd/nfd.sock".to_owned(),
        scope,
        persistency: FacePersistency::OnDemand,
        link_type: LinkType::PointToPoint,
        flags: face_flags::CONGESTION_MARKING,
        base_congestion_marking_interval_ns: Some(100_000_000),
        default_congestion_threshold_bytes: Some(65536),
        mtu: Some(8800),
    }
}

pub(crate) struct Harness {
    pub(crate) manager: Manager,
    pub(crate) now: Instant,
    pub(crate) unix_ms: u64,
    pub(crate) out: ManagerOutbox,
    nonce: u64,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with_config(ManagerConfig::default())
    }

    pub(crate) fn with_config(config: ManagerConfig) -> Self {
        let mut out = ManagerOutbox::default();
        let manager = Manager::new(config, &mut out);
        let now = Instant::from_ns(1_000_000);
        let mut harness = Self { manager, now, unix_ms: UNIX_MS, out, nonce: 0 };
        harness.add_face(face(CLIENT, "fd://20", FaceScope::Local));
        harness.add_face(face(PEER, "udp4://192.0.2.1:6363", FaceScope::NonLocal));
        harness
    }

    /// Takes the output since the last call.
    pub(crate) fn drain(&mut self) -> ManagerOutbox {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn give(&mut self, input: ManagerInput) {
        self.manager.handle(self.now, self.unix_ms, input, &mut self.out);
    }

    pub(crate) fn add_face(&mut self, info: FaceInfo) {
        self.give(ManagerInput::FaceEvent { kind: FaceEventKind::Created, info });
    }

    pub(crate) fn advance_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ns(ms * NS_PER_MS);
        self.unix_ms += ms;
        self.give(ManagerInput::Wakeup);
    }

    /// Passes an Interest from a face. Afterwards the outbox has only its effects.
    pub(crate) fn interest_from(&mut self, ingress: FaceId, sender: Sender, interest: &[u8]) {
        self.out = ManagerOutbox::default();
        let packet = Packet::from(interest);
        self.give(ManagerInput::Interest { ingress, sender, packet });
    }

    pub(crate) fn interest(&mut self, interest: &[u8]) {
        self.interest_from(CLIENT, Sender::Operator, interest);
    }

    pub(crate) fn command_octets(
        &mut self,
        scope: Scope,
        command: Command,
        parameters: &ControlParameters,
        signer: &dyn Signer,
    ) -> Vec<u8> {
        self.nonce += 1;
        let nonce = self.nonce.to_be_bytes();
        commands::build_command(scope, command, parameters, signer, nonce, self.unix_ms).unwrap()
    }

    /// Sends a command from the client's face.
    pub(crate) fn send(&mut self, command: Command, parameters: &ControlParameters) {
        let wire = self.command_octets(Scope::Localhost, command, parameters, &DigestSigner);
        self.interest(&wire);
    }

    /// Sends a command that is answered at once, and returns the answer.
    pub(crate) fn command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> ControlResponse {
        self.send(command, parameters);
        self.response()
    }

    /// The one response in the outbox.
    pub(crate) fn response(&mut self) -> ControlResponse {
        assert_eq!(self.out.data.len(), 1, "{:?}", self.out);
        let packet = self.out.data.remove(0).packet;
        assert!(packet.len() <= PACKET_SIZE_MAX, "{}", packet.len());
        let data = DataView::decode(&packet).expect("a Data");
        assert_eq!(data.freshness_ms, 1000);
        commands::parse_response(&data).expect("a ControlResponse")
    }

    /// The one action in the outbox.
    pub(crate) fn action(&mut self) -> Action {
        assert_eq!(self.out.actions.len(), 1, "{:?}", self.out);
        self.out.actions.remove(0)
    }

    pub(crate) fn assert_silent(&self) {
        assert!(self.out.data.is_empty(), "{:?}", self.out.data);
        assert!(self.out.actions.is_empty(), "{:?}", self.out.actions);
    }

    /// The FIB as text, in the order of fib/list.
    pub(crate) fn fib(&self) -> Vec<String> {
        self.manager
            .fib()
            .items()
            .map(|entry| {
                let hops: Vec<String> =
                    entry.next_hops.iter().map(|h| format!("{}:{}", h.face_id, h.cost)).collect();
                format!("{} {}", entry.name, hops.join(","))
            })
            .collect()
    }
}

pub(crate) fn parameters(fill: impl FnOnce(&mut ControlParameters)) -> ControlParameters {
    let mut parameters = ControlParameters::default();
    fill(&mut parameters);
    parameters
}

/// Whether a response holds every field that `expected` has.
pub(crate) fn body(response: &ControlResponse) -> ControlParameters {
    assert_eq!(response.code, 200, "{}", response.text);
    let body = response.body.as_deref().expect("a body").clone();
    assert_eq!(ControlParameters::decode(&body.encode()).as_ref(), Ok(&body));
    body
}
