//! Authorization of commands.

use weir_base::FaceId;
use weir_manage::commands::{Command, Scope};
use weir_manage::{
    AnchorLookup, ControlParameters, FaceScope, ManagerConfig, PREFIX_COMPONENTS_MAX, Sender,
    face_flags,
};
use weir_security::{
    DigestSigner, KeyLocator, SignError, SignatureType, Signer, Verifier, VerifyError, sha256,
};
use weir_wire::{Interest, KeyLocatorView, Name, signature_type, tlv};

use crate::harness::{CLIENT, Harness, PEER, UNIX_MS, body, face, name, parameters};

/// A keyed digest, which is enough to distinguish right and wrong signatures here.
#[derive(Clone)]
pub(crate) struct Key {
    name: &'static str,
    secret: &'static [u8],
}

pub(crate) const OPERATOR: Key = Key { name: "/operator/KEY/1", secret: b"operator" };
pub(crate) const STRANGER: Key = Key { name: "/stranger/KEY/1", secret: b"stranger" };
pub(crate) const FORGER: Key = Key { name: "/operator/KEY/1", secret: b"guess" };

impl Key {
    fn value(&self, portions: &[&[u8]]) -> Vec<u8> {
        let mut keyed = vec![self.secret];
        keyed.extend_from_slice(portions);
        sha256(&keyed).to_vec()
    }
}

impl Signer for Key {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        Some(KeyLocator::Name(name(self.name)))
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        Ok(self.value(portions))
    }
}

impl Verifier for Key {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        if self.value(portions) == signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

pub(crate) struct Operator;

impl AnchorLookup for Operator {
    fn verifier(&self, locator: KeyLocatorView<'_>, _: u64) -> Option<&dyn Verifier> {
        match locator {
            KeyLocatorView::Name(key) if key == name(OPERATOR.name).as_view() => Some(&OPERATOR),
            _ => None,
        }
    }
}

fn anchored() -> Harness {
    Harness::with_config(ManagerConfig {
        local_registration: false,
        announcement_anchors: Some(Box::new(Operator)),
        anchors: Some(Box::new(Operator)),
        localhop: true,
        ..ManagerConfig::default()
    })
}

fn register() -> ControlParameters {
    parameters(|p| p.name = Some(name("/x")))
}

/// The response code, or `None` without a response.
fn code(harness: &mut Harness, wire: &[u8]) -> Option<u64> {
    harness.interest_from(CLIENT, Sender::Application, wire);
    (!harness.out.data.is_empty()).then(|| harness.response().code)
}

fn signed(harness: &mut Harness, command: Command, signer: &dyn Signer) -> Vec<u8> {
    let parameters = match command {
        Command::FacesDestroy => parameters(|p| p.face_id = Some(FaceId(999))),
        _ => register(),
    };
    harness.command_octets(Scope::Localhost, command, &parameters, signer)
}

/// A command in the format of packet specification 0.2.
fn old_format(key: &Key, time_ms: u64) -> Vec<u8> {
    let mut name = name("/localhost/nfd/rib/register");
    name.append_generic(&weir_manage::Element::encode(&register()));
    name.append_generic(&time_ms.to_be_bytes()).append_generic(&[7; 8]);
    let mut info = tlv::Writer::new();
    let mut signature_info = weir_wire::SignatureInfo::new(signature_type::HMAC_WITH_SHA256);
    signature_info.key_locator = key.key_locator();
    signature_info.write(tlv::SIGNATURE_INFO, &mut info);
    name.append_generic(info.as_slice());
    let mut value = tlv::Writer::new();
    value.tlv(tlv::SIGNATURE_VALUE, &key.value(&[name.value()]));
    name.append_generic(value.as_slice());
    Interest::new(name).nonce(1).encode()
}

#[test]
fn applications_register_by_default() {
    let mut harness = Harness::new();
    let digest = signed(&mut harness, Command::RibRegister, &DigestSigner);
    assert_eq!(code(&mut harness, &digest), Some(200));
    let stranger = signed(&mut harness, Command::RibRegister, &STRANGER);
    assert_eq!(code(&mut harness, &stranger), Some(200));
    assert_eq!(code(&mut harness, &old_format(&STRANGER, UNIX_MS)), Some(200));
    // Replays too, because the signer is unknown.
    assert_eq!(code(&mut harness, &digest), Some(200));
    let mut unsigned = name("/localhost/nfd/rib/register");
    unsigned.append_generic(&weir_manage::Element::encode(&register()));
    assert_eq!(code(&mut harness, &Interest::new(unsigned).nonce(1).encode()), Some(200));
}

#[test]
fn other_hosts_never_reach_localhost() {
    let mut harness = anchored();
    let wire = signed(&mut harness, Command::RibRegister, &OPERATOR);
    harness.interest_from(PEER, Sender::Remote, &wire);
    harness.assert_silent();
    assert_eq!(harness.manager.stats().ignored, 1);
}

#[test]
fn only_anchors_where_configured() {
    for make in [
        (|h: &mut Harness, key: &Key| signed(h, Command::RibRegister, key)) as fn(&mut _, &_) -> _,
        |h: &mut Harness, key: &Key| old_format(key, h.unix_ms),
    ] {
        let mut harness = anchored();
        let good = make(&mut harness, &OPERATOR);
        assert_eq!(code(&mut harness, &good), Some(200));
        assert_eq!(code(&mut harness, &good), Some(403), "a replay");
        let same_time = make(&mut harness, &OPERATOR);
        assert_eq!(code(&mut harness, &same_time), Some(403), "not later than the last");
        harness.advance_ms(1);
        let later = make(&mut harness, &OPERATOR);
        assert_eq!(code(&mut harness, &later), Some(200));
        harness.advance_ms(1);
        let forged = make(&mut harness, &FORGER);
        assert_eq!(code(&mut harness, &forged), Some(403));
        let stranger = make(&mut harness, &STRANGER);
        assert_eq!(code(&mut harness, &stranger), Some(403));
        assert_eq!(harness.manager.stats().unauthorized, 4);
    }
}

#[test]
fn refuses_commands_outside_clock_skew() {
    let mut harness = anchored();
    for (offset_ms, expected) in
        [(-120_001_i64, 403), (120_001, 403), (-120_000, 200), (120_000, 200)]
    {
        harness.unix_ms = UNIX_MS.checked_add_signed(offset_ms).unwrap();
        let wire = signed(&mut harness, Command::RibRegister, &OPERATOR);
        harness.unix_ms = UNIX_MS;
        assert_eq!(code(&mut harness, &wire), Some(expected), "{offset_ms}");
    }
}

#[test]
fn digests_are_refused_with_anchors() {
    let mut harness = anchored();
    let digest = signed(&mut harness, Command::FacesDestroy, &DigestSigner);
    assert_eq!(code(&mut harness, &digest), Some(403));
    let unsigned = |module_and_verb: &str| {
        let mut name = name(&format!("/localhost/nfd/{module_and_verb}"));
        name.append_generic(&weir_manage::Element::encode(&register()));
        Interest::new(name).nonce(1).encode()
    };
    assert_eq!(code(&mut harness, &unsigned("fib/add-nexthop")), Some(403));
    assert_eq!(code(&mut harness, &unsigned("rib/register")), Some(403));
    // A refused command has no effect, and does not change the key's last time.
    assert_eq!(harness.fib(), ["/localhop/nfd 1:0", "/localhost 1:0", "/localhost/nfd 1:0"]);
    let good = signed(&mut harness, Command::RibRegister, &OPERATOR);
    assert_eq!(code(&mut harness, &good), Some(200));
}

#[test]
fn neighbours_with_a_key() {
    let mut harness = anchored();
    let wire =
        harness.command_octets(Scope::Localhop, Command::RibRegister, &register(), &OPERATOR);
    harness.interest_from(PEER, Sender::Remote, &wire);
    let body = body(&harness.response());
    assert_eq!(body.face_id, Some(PEER));
    assert!(harness.fib().contains(&"/x 262:0".to_owned()));

    harness.advance_ms(1);
    let digest =
        harness.command_octets(Scope::Localhop, Command::RibRegister, &register(), &DigestSigner);
    harness.interest_from(PEER, Sender::Remote, &digest);
    assert_eq!(harness.response().code, 403);
    let faces = harness.command_octets(
        Scope::Localhop,
        Command::FacesDestroy,
        &parameters(|p| p.face_id = Some(CLIENT)),
        &OPERATOR,
    );
    harness.interest_from(PEER, Sender::Remote, &faces);
    harness.assert_silent();

    // Even a local face needs the key there, and no key is accepted unless it is configured.
    harness.interest_from(CLIENT, Sender::Application, &digest);
    assert_eq!(harness.response().code, 403);
    let mut closed = Harness::new();
    closed.interest_from(PEER, Sender::Remote, &wire);
    closed.assert_silent();
}

/// The response to a command of a program of this host.
fn response_to_application(
    harness: &mut Harness,
    command: Command,
    parameters: &ControlParameters,
) -> weir_manage::ControlResponse {
    let wire = harness.command_octets(Scope::Localhost, command, parameters, &DigestSigner);
    harness.interest_from(CLIENT, Sender::Application, &wire);
    harness.response()
}

/// Sets these flags of a face.
fn fields(flags: u64, face: FaceId) -> ControlParameters {
    parameters(|p| (p.flags, p.mask, p.face_id) = (Some(flags), Some(flags), Some(face)))
}

#[test]
fn applications_change_only_their_face() {
    let config = ManagerConfig { operators: "root and group ndn".into(), ..Default::default() };
    let mut harness = Harness::with_config(config);
    let strategy = name("/localhost/nfd/strategy/multicast");
    let refused = [
        (Command::FacesCreate, parameters(|p| p.uri = Some("udp4://192.0.2.9:6363".into()))),
        (Command::FacesUpdate, fields(face_flags::CONGESTION_MARKING, CLIENT)),
        (Command::FacesUpdate, fields(face_flags::LOCAL_FIELDS, PEER)),
        (Command::FacesUpdate, parameters(|p| p.mtu = Some(1000))),
        (Command::FacesDestroy, parameters(|p| p.face_id = Some(CLIENT))),
        (Command::FibAddNextHop, register()),
        (Command::FibRemoveNextHop, register()),
        (Command::CsConfig, parameters(|p| p.capacity = Some(0))),
        (Command::CsErase, register()),
        (Command::CsPin, parameters(|p| (p.name, p.count) = (Some(name("/x")), Some(1)))),
        (Command::CsUnpin, register()),
        (Command::CsEvictFirst, register()),
        (
            Command::StrategyChoiceSet,
            parameters(|p| {
                (p.name, p.strategy) = (Some(name("/")), Some(strategy.clone()));
            }),
        ),
        (Command::StrategyChoiceUnset, register()),
        (Command::RouterReload, parameters(|_| ())),
        (
            Command::RibRegister,
            parameters(|p| {
                (p.name, p.face_id) = (Some(name("/x")), Some(PEER));
            }),
        ),
        (
            Command::RibUnregister,
            parameters(|p| {
                (p.name, p.face_id) = (Some(name("/x")), Some(PEER));
            }),
        ),
        (Command::RibRegister, parameters(|p| p.name = Some(name("/localhost/nfd/rib")))),
        (Command::RibRegister, parameters(|p| p.name = Some(name("/localhop/nfd")))),
    ];
    for (command, parameters) in refused {
        let response = response_to_application(&mut harness, command, &parameters);
        assert_eq!(response.code, 403, "{command:?}");
        assert!(response.text.contains("only root and group ndn may"), "{}", response.text);
        assert!(harness.out.actions.is_empty(), "{command:?}");
    }
}

#[test]
fn applications_may_run_harmless_commands() {
    let mut harness = Harness::new();
    let mut copy = name("/x");
    copy.append_implicit_digest([7; 32]);
    let allowed = [
        (Command::RibRegister, register()),
        (
            Command::RibRegister,
            parameters(|p| {
                (p.name, p.face_id) = (Some(name("/y")), Some(CLIENT));
            }),
        ),
        (Command::RibUnregister, register()),
    ];
    for (command, parameters) in allowed {
        let response = response_to_application(&mut harness, command, &parameters);
        assert_eq!(response.code, 200, "{command:?} {}", response.text);
    }
    for (command, parameters) in [
        (Command::FacesUpdate, fields(face_flags::LOCAL_FIELDS, FaceId::INVALID)),
        (Command::CsErase, parameters(|p| p.name = Some(copy.clone()))),
    ] {
        let wire = harness.command_octets(Scope::Localhost, command, &parameters, &DigestSigner);
        harness.interest_from(CLIENT, Sender::Application, &wire);
        assert_eq!(harness.out.actions.len(), 1, "{command:?}");
    }
    harness.interest_from(
        CLIENT,
        Sender::Application,
        &announce(&announcement(&name("/n"), 1000, &DigestSigner)),
    );
    assert_eq!(harness.response().code, 200);
}

#[test]
fn default_routes_receive_no_commands() {
    let mut harness = Harness::new();
    let default = parameters(|p| p.name = Some(name("/")));
    let response = response_to_application(&mut harness, Command::RibRegister, &default);
    assert_eq!(response.code, 200);
    // It does not get the Interests of neighbours for the router either.
    assert_eq!(
        harness.fib(),
        ["/ 256:0", "/localhop/nfd 1:0", "/localhost 1:0,256:0", "/localhost/nfd 1:0"]
    );
}

pub(crate) fn announcement(prefix: &Name, expiration_ms: u64, signer: &dyn Signer) -> Vec<u8> {
    let mut content = tlv::Writer::new();
    content.nni(109, expiration_ms);
    announcement_with(prefix, content, signer)
}

/// An announcement with this content.
pub(crate) fn announcement_with(
    prefix: &Name,
    content: tlv::Writer,
    signer: &dyn Signer,
) -> Vec<u8> {
    let mut name = prefix.clone();
    name.append_keyword(b"PA").append_version(1).append_segment(0);
    let data = weir_wire::Data::new(name).content_type(5).content(content.into_vec());
    weir_security::sign_data(&data, signer).unwrap()
}

pub(crate) fn announce(announcement: &[u8]) -> Vec<u8> {
    let interest = Interest::new(name("/localhost/nfd/rib/announce")).nonce(1);
    interest.application_parameters(announcement).encode()
}

#[test]
fn announces_prefixes() {
    // `cxx-prefixannouncement` of the test vectors.
    let vector = "06a1071808036e657408076578616d706c6520025041360101320100140318010515066d040036ee8016301b01031c2b07290803766563080363787808034b45590808723094e5e0813c1b080473656c663608000001a1f8231b0b17463044022028e3c9920633f95062645f5829567a98ab5e144718ecfd9454a076cfdf8afdf3022022731a1ba3953ddfeeb31d441b7dffb9c659ff78f3273d3af89f27def230d19f";
    let mut harness = Harness::new();
    harness.interest(&announce(&hex::decode(vector).unwrap()));
    let body = body(&harness.response());
    assert_eq!(body.name, Some(name("/net/example")));
    assert_eq!(body.face_id, Some(CLIENT));
    assert_eq!(body.origin, Some(129), "that of prefix announcements");
    assert_eq!((body.cost, body.flags), (Some(2048), Some(1)));
    assert_eq!(body.expiration_period_ms, Some(3_600_000));
    assert!(harness.fib().contains(&"/net/example 256:2048".to_owned()));

    let mut long = Name::new();
    for _ in 0..=PREFIX_COMPONENTS_MAX {
        long.append_str("x");
    }
    harness.interest(&announce(&announcement(&long, 1000, &DigestSigner)));
    assert_eq!(harness.response().code, 414);
    harness.interest(&announce(b"\x24\x00"));
    assert_eq!(harness.response().code, 400);
}

#[test]
fn announcements_of_unknown_signers() {
    let mut harness = Harness::with_config(ManagerConfig {
        announcement_anchors: Some(Box::new(Operator)),
        ..ManagerConfig::default()
    });
    for (signer, expected) in
        [(&OPERATOR as &dyn Signer, 200), (&FORGER, 403), (&STRANGER, 403), (&DigestSigner, 403)]
    {
        harness.interest(&announce(&announcement(&name("/n"), 1000, signer)));
        assert_eq!(harness.response().code, expected);
    }
    assert!(harness.fib().contains(&"/n 256:2048".to_owned()));
}

#[test]
fn records_of_keys_are_bounded() {
    // 1100 keys, all anchors. The record of the first one is removed, so its replay is accepted
    // again. That of the last one is still refused.
    struct All;
    impl AnchorLookup for All {
        fn verifier(&self, _: KeyLocatorView<'_>, _: u64) -> Option<&dyn Verifier> {
            Some(&OPERATOR)
        }
    }
    struct Numbered(u64);
    impl Signer for Numbered {
        fn signature_type(&self) -> SignatureType {
            SignatureType::HMAC_SHA256
        }
        fn key_locator(&self) -> Option<KeyLocator> {
            let mut key = name("/key");
            key.append_segment(self.0);
            Some(KeyLocator::Name(key))
        }
        fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
            OPERATOR.sign(portions)
        }
    }
    let mut harness = Harness::with_config(ManagerConfig {
        local_registration: false,
        anchors: Some(Box::new(All)),
        ..ManagerConfig::default()
    });
    harness.add_face(face(FaceId(500), "fd://21", FaceScope::Local));
    let wires: Vec<_> = (0..1100)
        .map(|number| signed(&mut harness, Command::RibRegister, &Numbered(number)))
        .collect();
    for wire in &wires {
        harness.now = harness.now.plus_ns(1);
        assert_eq!(code(&mut harness, wire), Some(200));
    }
    assert_eq!(code(&mut harness, &wires[1099]), Some(403));
    assert_eq!(code(&mut harness, &wires[100]), Some(403));
    assert_eq!(code(&mut harness, &wires[99]), Some(200));
}
