//! Every command, its validation and its response codes.

use weir_base::FaceId;
use weir_manage::commands::Command;
use weir_manage::{
    Action, ControlParameters, FaceChanges, FaceError, FaceEventKind, FacePersistency, FaceRequest,
    FaceScope, ManagerConfig, ManagerInput, NextHopRecord, PREFIX_COMPONENTS_MAX, StoreSettings,
    face_flags, route_flags, route_origin,
};
use weir_wire::{DataView, Interest, Name};

use crate::harness::{CLIENT, Harness, PEER, body, face, name, parameters};

const OWN_ROUTES: [&str; 2] = ["/localhost 1:0", "/localhost/nfd 1:0"];

/// The origin of routes that applications register (NFD, RouteOrigin).
const APP: u64 = 0;

/// `cxx-command-rib-register-v03-digest` and `-v02-digest` of the test vectors: what ndn-cxx's
/// client sends for `nfdc route add /example 262 ...`.
const REGISTER_V03: &str = "05a8076308096c6f63616c686f737408036e66640803726962080872656769737465720820681e070908076578616d706c65690201066f01416a010a6c01016d040036ee80022096800deedba86f0d59ed042835635c2ed0fd4cf51861d6a909d1ef48308525fc0a040102030424002c171b01002608eb05fc7d72abe4ed2808000001a1f8231b0a2e20b86f80558156dc264ed67d479a07145b145d5e172dac17b990894343416cfff6";
const REGISTER_V02: &str = "0588078008096c6f63616c686f737408036e66640803726962080872656769737465720820681e070908076578616d706c65690201066f01416a010a6c01016d040036ee800808000001a1f8231b0a0808b71a8f60284b6ae0080516031b0100082217204e76f30a4d59797d83a90a8dc810605b4af84c2f85eed7c4f3b7d30ea21449310a0401020304";

#[test]
fn starts_with_own_route_and_strategies() {
    let mut harness = Harness::new();
    let actions = harness.drain().actions;
    let strategies: Vec<String> = actions
        .iter()
        .filter_map(|action| match action {
            Action::SetStrategy { prefix, strategy: Some(strategy) } => {
                Some(format!("{prefix} {strategy}"))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        strategies,
        [
            "/ /localhost/nfd/strategy/best-route/v=5",
            "/localhost /localhost/nfd/strategy/multicast/v=5",
            "/localhost/nfd /localhost/nfd/strategy/best-route/v=5",
            "/ndn/broadcast /localhost/nfd/strategy/multicast/v=5",
        ]
    );
    let own = Action::SetNextHops {
        prefix: name("/localhost/nfd"),
        next_hops: vec![NextHopRecord { face_id: FaceId::INTERNAL, cost: 0 }],
    };
    assert!(actions.contains(&own), "{actions:?}");
}

#[test]
fn registers_in_both_formats_of_ndn_cxx() {
    for octets in [REGISTER_V03, REGISTER_V02] {
        let wire = hex::decode(octets).unwrap();
        let mut harness = Harness::new();
        harness.interest(&wire);
        let hops = vec![NextHopRecord { face_id: PEER, cost: 10 }];
        assert_eq!(
            harness.action(),
            Action::SetNextHops { prefix: name("/example"), next_hops: hops }
        );
        let reply = harness.out.data[0].clone();
        let data = DataView::decode(&reply.packet).unwrap();
        let interest = weir_wire::InterestView::decode(&wire).unwrap();
        assert_eq!(data.name, interest.name, "the answer has the Interest's name");
        assert!(!reply.no_cache);
        assert_eq!(reply.face, CLIENT);
        let expected = "681e070908076578616d706c65690201066f01416a010a6c01016d040036ee80";
        let expected = format!("65276601c867024f4b{expected}");
        assert_eq!(hex::encode(data.content), expected, "octets of ndn-cxx's response");

        assert_eq!(harness.manager.rib().len(), 3);
        let wakeup = harness.manager.next_wakeup().unwrap();
        assert_eq!(wakeup, harness.now.plus_ns(3600 * weir_base::NS_PER_S));
        harness.drain();
        harness.advance_ms(3_600_000 - 1);
        assert_eq!(harness.manager.rib().len(), 3);
        harness.advance_ms(1);
        assert_eq!(
            harness.action(),
            Action::SetNextHops { prefix: name("/example"), next_hops: vec![] }
        );
        assert_eq!(harness.manager.next_wakeup(), None);
    }
}

#[test]
fn registers_the_sender_by_default() {
    let mut harness = Harness::new();
    let response =
        harness.command(Command::RibRegister, &parameters(|p| p.name = Some(name("/me"))));
    let body = body(&response);
    assert_eq!(body.face_id, Some(CLIENT));
    assert_eq!((body.origin, body.cost, body.flags), (Some(0), Some(0), Some(1)));
    assert_eq!(body.expiration_period_ms, None);
    assert!(harness.fib().contains(&"/me 256:0".to_owned()));

    let response =
        harness.command(Command::RibUnregister, &parameters(|p| p.name = Some(name("/me"))));
    assert_eq!(crate::harness::body(&response).face_id, Some(CLIENT));
    assert_eq!(harness.fib(), OWN_ROUTES);
    // Repeating it is not an error.
    let again = parameters(|p| p.name = Some(name("/me")));
    assert_eq!(harness.command(Command::RibUnregister, &again).code, 200);
}

#[test]
fn inherits_captures_and_forgets_faces() {
    let mut harness = Harness::new();
    let mut register = |prefix: &str, face: FaceId, cost: u64, flags: u64| {
        let parameters = parameters(|p| {
            p.name = Some(name(prefix));
            p.face_id = Some(face);
            p.cost = Some(cost);
            p.flags = Some(flags);
        });
        assert_eq!(harness.command(Command::RibRegister, &parameters).code, 200);
    };
    register("/a", PEER, 5, route_flags::CHILD_INHERIT);
    register("/a/b", CLIENT, 7, route_flags::CHILD_INHERIT);
    register("/a/b/c", CLIENT, 1, route_flags::CAPTURE);
    register("/a/b/c/d", CLIENT, 2, 0);
    let others = ["/a 262:5", "/a/b 262:5,256:7", "/a/b/c 256:1", "/a/b/c/d 256:2"];
    assert_eq!(harness.fib(), [&others[..], &OWN_ROUTES].concat());
    harness.drain();
    harness.give(ManagerInput::FaceEvent {
        kind: FaceEventKind::Destroyed,
        info: face(CLIENT, "fd://20", FaceScope::Local),
    });
    assert_eq!(harness.fib(), [&["/a 262:5"], &OWN_ROUTES[..]].concat());
    let changed: Vec<Name> = harness
        .drain()
        .actions
        .into_iter()
        .map(|action| match action {
            Action::SetNextHops { prefix, .. } => prefix,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(changed, [name("/a/b"), name("/a/b/c"), name("/a/b/c/d")]);
}

#[test]
fn route_to_unknown_face_is_omitted() {
    let mut harness = Harness::new();
    let unknown = parameters(|p| {
        p.name = Some(name("/x"));
        p.face_id = Some(FaceId(999));
    });
    assert_eq!(harness.command(Command::RibRegister, &unknown).code, 200);
    assert_eq!(harness.fib(), OWN_ROUTES);
    let response = harness.command(Command::FibAddNextHop, &unknown);
    assert_eq!((response.code, response.text.as_str()), (410, "Face not found"));
}

#[test]
fn prefixes_that_are_too_long() {
    let mut harness = Harness::new();
    let mut long = Name::new();
    for _ in 0..=PREFIX_COMPONENTS_MAX {
        long.append_str("x");
    }
    let mut shorter = long.clone();
    shorter.pop();
    let strategy = name("/localhost/nfd/strategy/multicast");
    for (command, with_strategy) in [
        (Command::FibAddNextHop, false),
        (Command::RibRegister, false),
        (Command::StrategyChoiceSet, true),
    ] {
        let with = |prefix: &Name| {
            parameters(|p| {
                p.name = Some(prefix.clone());
                p.strategy = with_strategy.then(|| strategy.clone());
            })
        };
        assert_eq!(harness.command(command, &with(&long)).code, 414, "{command:?}");
        assert_eq!(harness.command(command, &with(&shorter)).code, 200, "{command:?}");
    }
}

#[test]
fn fib_commands_set_next_hops() {
    let mut harness = Harness::new();
    let add = parameters(|p| {
        p.name = Some(name("/f"));
        p.face_id = Some(PEER);
        p.cost = Some(9);
    });
    let response = harness.command(Command::FibAddNextHop, &add);
    assert_eq!(body(&response), add);
    assert!(harness.fib().contains(&"/f 262:9".to_owned()));
    let remove = parameters(|p| {
        p.name = Some(name("/f"));
        p.face_id = Some(PEER);
    });
    assert_eq!(body(&harness.command(Command::FibRemoveNextHop, &remove)), remove);
    assert_eq!(harness.action(), Action::SetNextHops { prefix: name("/f"), next_hops: vec![] });
    assert_eq!(harness.command(Command::FibRemoveNextHop, &remove).code, 200);
    assert!(harness.drain().actions.is_empty());
}

#[test]
fn parameters_are_validated() {
    let mut harness = Harness::new();
    let prefix = || Some(name("/p"));
    let bad = [
        (Command::FacesCreate, parameters(|_| ())),
        (Command::FacesDestroy, parameters(|p| p.face_id = Some(FaceId(0)))),
        (Command::FacesUpdate, parameters(|p| p.flags = Some(1))),
        (Command::FacesUpdate, parameters(|p| p.mask = Some(1))),
        (Command::FibAddNextHop, parameters(|p| p.cost = Some(1))),
        (
            Command::FibRemoveNextHop,
            parameters(|p| {
                p.name = prefix();
                p.cost = Some(1);
            }),
        ),
        (Command::CsConfig, parameters(|p| p.count = Some(1))),
        (
            Command::CsErase,
            parameters(|p| {
                p.name = prefix();
                p.count = Some(0);
            }),
        ),
        (Command::CsPin, parameters(|p| p.name = prefix())),
        (Command::CsUnpin, parameters(|_| ())),
        (Command::CsEvictFirst, parameters(|p| p.count = Some(1))),
        (Command::StrategyChoiceSet, parameters(|p| p.name = prefix())),
        (Command::StrategyChoiceUnset, parameters(|p| p.name = Some(Name::new()))),
        (Command::RibRegister, parameters(|p| p.cost = Some(1))),
        (
            Command::RibUnregister,
            parameters(|p| {
                p.name = prefix();
                p.flags = Some(1);
            }),
        ),
    ];
    for (command, parameters) in bad {
        let response = harness.command(command, &parameters);
        assert_eq!(response.code, 400, "{command:?} {parameters:?}");
        assert_eq!(response.text, "failed in validating parameters");
        assert!(harness.out.actions.is_empty());
    }
}

fn create(uri: &str, fill: impl FnOnce(&mut ControlParameters)) -> ControlParameters {
    parameters(|p| {
        p.uri = Some(uri.to_owned());
        fill(p);
    })
}

#[test]
fn invalid_faces_are_refused_at_once() {
    let mut harness = Harness::new();
    let tcp = "tcp4://192.0.2.7:6363";
    let udp = "udp4://192.0.2.7:6363";
    let cases = [
        (create("no uri", |_| ()), 400, "Malformed command"),
        (create("unix://tmp/x", |_| ()), 400, "Non-canonical remote URI"),
        (create("dev://", |_| ()), 400, "Non-canonical remote URI"),
        (create(udp, |p| p.local_uri = Some("?".into())), 400, "Malformed command"),
        (
            create(udp, |p| p.local_uri = Some("udp4://127.0.0.1".into())),
            400,
            "Non-canonical local URI",
        ),
        (
            create(udp, |p| p.local_uri = Some("udp4://127.0.0.1:1".into())),
            406,
            "Unicast UDP faces cannot be created with a LocalUri",
        ),
        (create("unix:///tmp/x", |_| ()), 406, "Unsupported protocol"),
        (create("wsclient://192.0.2.7:9696", |_| ()), 406, "Unsupported protocol"),
        (
            create("ws://192.0.2.7:9696", |p| p.mtu = Some(1400)),
            406,
            "WebSocket faces do not support MTU overrides",
        ),
        (
            create(tcp, |p| p.face_persistency = Some(FacePersistency::OnDemand)),
            406,
            "Outgoing TCP faces do not support on-demand persistency",
        ),
        (create("udp4://224.0.23.170:56363", |_| ()), 406, "Cannot create multicast UDP faces"),
        (
            create("udp4://255.255.255.255:6363", |_| ()),
            406,
            "A face has one peer, and 255.255.255.255 is the address of all",
        ),
        (
            create(tcp, |p| {
                p.flags = Some(face_flags::LOCAL_FIELDS);
                p.mask = Some(face_flags::LOCAL_FIELDS);
            }),
            406,
            "Local fields can only be enabled on faces with local scope",
        ),
        (create(tcp, |p| p.mtu = Some(1400)), 406, "TCP faces do not support MTU overrides"),
        (create(udp, |p| p.mtu = Some(63)), 406, "Override MTU cannot be less than 64"),
    ];
    for (parameters, code, text) in cases {
        let response = harness.command(Command::FacesCreate, &parameters);
        assert_eq!((response.code, response.text.as_str()), (code, text), "{parameters:?}");
        assert!(harness.out.actions.is_empty());
    }
}

#[test]
fn own_faces_of_the_router_take_routes_but_stay() {
    let mut harness = Harness::new();
    for own in [FaceId::INTERNAL, FaceId::CONTENT_STORE, FaceId::NULL] {
        let destroy = parameters(|p| p.face_id = Some(own));
        assert_eq!(harness.command(Command::FacesDestroy, &destroy).code, 406);
        assert!(harness.out.actions.is_empty());
    }
    // The store is never a next hop: it has been searched before.
    for own in [FaceId::INTERNAL, FaceId::NULL] {
        let route = parameters(|p| {
            p.name = Some(name("/hole"));
            p.face_id = Some(own);
        });
        assert_eq!(harness.command(Command::RibRegister, &route).code, 200);
        assert_eq!(harness.out.actions.len(), 1, "{own}");
    }
}

/// The last command would be the last one ever.
#[test]
fn own_routes_of_the_router_stay() {
    let mut harness = Harness::new();
    let before = harness.fib();
    let own = |origin, expires| {
        parameters(|p| {
            p.name = Some(name("/localhost/nfd"));
            p.face_id = Some(FaceId::INTERNAL);
            p.origin = origin;
            p.expiration_period_ms = expires;
        })
    };
    for (command, parameters) in [
        (Command::RibUnregister, own(Some(APP), None)),
        (Command::RibUnregister, own(None, None)),
        (Command::RibRegister, own(Some(APP), Some(1))),
        (Command::FibRemoveNextHop, own(None, None)),
    ] {
        assert_eq!(harness.command(command, &parameters).code, 406, "{command:?}");
        harness.advance_ms(10);
        assert_eq!(harness.fib(), before);
    }
    // Others come and go.
    let other = own(Some(route_origin::STATIC), None);
    assert_eq!(harness.command(Command::RibRegister, &other).code, 200);
    assert_eq!(harness.command(Command::RibUnregister, &other).code, 200);
    assert_eq!(harness.fib(), before);
}

/// `nfdc strategy set /a /localhost/nfd/strategy/best-route/%FD%05` works with NFD (fe044ce).
#[test]
fn old_version_components_name_strategies() {
    let mut harness = Harness::new();
    let set = |strategy: &str| {
        parameters(|p| {
            p.name = Some(name("/a"));
            p.strategy = Some(name(&format!("/localhost/nfd/strategy/best-route/{strategy}")));
        })
    };
    for (given, full) in [
        ("%FD%05", "v=5"),
        ("%FD%00%05", "v=5"),
        ("%FD%05/retx-suppression-initial~20", "v=5/retx-suppression-initial~20"),
    ] {
        let response = harness.command(Command::StrategyChoiceSet, &set(given));
        let strategy = response.body.and_then(|body| body.strategy);
        assert_eq!(strategy, Some(name(&format!("/localhost/nfd/strategy/best-route/{full}"))));
    }
    for (given, code) in [("%FD%04", 409), ("%FD", 404), ("%FD%00%00%05", 404)] {
        let response = harness.command(Command::StrategyChoiceSet, &set(given));
        assert_eq!(response.code, code, "{given}");
    }
}

/// ndnd's documents create faces to host names, and NFD refuses them (31822ab, fe044ce).
#[test]
fn driver_resolves_host_names_of_new_faces() {
    for uri in [
        "udp://router.example",
        "udp4://router.example:6363",
        "udp://192.0.2.7:6363",
        "udp4://192.0.2.7",
        "udp6://[2001:DB8::1]:6363",
        "tcp://router.example",
        "hicn+udp://router.example",
        "ws://router.example:9696",
        "wss://router.example/ws/",
        "wss://router.example:443",
    ] {
        let mut harness = Harness::new();
        harness.send(Command::FacesCreate, &create(uri, |_| ()));
        let Action::CreateFace { txn, request } = harness.action() else { panic!("{uri}") };
        assert_eq!(request.uri, uri);
        let failed = Err(FaceError::ConnectFailed("no such host".into()));
        harness.give(ManagerInput::FaceCreated { txn, result: failed });
        let response = harness.response();
        assert_eq!((response.code, response.text.as_str()), (504, "no such host"), "{uri}");
    }
}

#[test]
fn creates_a_face() {
    let mut harness = Harness::new();
    let wanted = create("udp4://192.0.2.7:6363", |p| {
        p.mtu = Some(1400);
        p.face_persistency = Some(FacePersistency::Permanent);
        p.flags = Some(0);
        p.mask = Some(face_flags::CONGESTION_MARKING);
    });
    harness.send(Command::FacesCreate, &wanted);
    let Action::CreateFace { txn, request } = harness.action() else { panic!("not a creation") };
    let changes =
        FaceChanges { mtu: Some(1400), congestion_marking: Some(false), ..FaceChanges::default() };
    let expected = FaceRequest {
        uri: "udp4://192.0.2.7:6363".into(),
        local_uri: None,
        persistency: FacePersistency::Permanent,
        changes,
    };
    assert_eq!(request, expected);
    harness.assert_silent();

    let mut made = face(FaceId(300), "udp4://192.0.2.7:6363", FaceScope::NonLocal);
    made.persistency = FacePersistency::Permanent;
    made.flags = 0;
    made.mtu = Some(1400);
    made.local_uri = "udp4://192.0.2.9:6363".into();
    harness.add_face(made.clone());
    harness.drain();
    harness.give(ManagerInput::FaceCreated { txn, result: Ok(made.clone()) });
    let created = body(&harness.response());
    assert_eq!(created.face_id, Some(FaceId(300)));
    assert_eq!(created.uri.as_deref(), Some("udp4://192.0.2.7:6363"));
    assert_eq!(created.local_uri.as_deref(), Some("udp4://192.0.2.9:6363"));
    assert_eq!(created.face_persistency, Some(FacePersistency::Permanent));
    assert_eq!((created.flags, created.mask, created.mtu), (Some(0), None, Some(1400)));
    assert_eq!(created.base_congestion_marking_interval_ns, Some(100_000_000));
    assert_eq!(created.default_congestion_threshold_bytes, Some(65536));

    let response = harness.command(Command::FacesCreate, &wanted);
    assert_eq!(response.code, 409);
    assert_eq!(response.text, "Face with remote URI already exists");
    assert_eq!(response.body.unwrap().face_id, Some(FaceId(300)));

    // A second answer is counted and not sent.
    harness.give(ManagerInput::FaceCreated { txn, result: Ok(made) });
    harness.assert_silent();
    assert_eq!(harness.manager.stats().late_answers, 1);
}

#[test]
fn face_errors_have_codes() {
    let mut harness = Harness::new();
    let existing = face(FaceId(301), "tcp4://192.0.2.8:6363", FaceScope::NonLocal);
    let cases = [
        (FaceError::ConnectFailed("Connection refused".into()), 504, "Connection refused"),
        (FaceError::Unsupported("no IPv6 here".into()), 406, "no IPv6 here"),
        (FaceError::Internal("out of descriptors".into()), 500, "out of descriptors"),
        (FaceError::Exists(existing), 409, "Face with remote URI already exists"),
    ];
    for (error, code, text) in cases {
        harness.send(Command::FacesCreate, &create("tcp4://192.0.2.8:6363", |_| ()));
        let Action::CreateFace { txn, .. } = harness.action() else { panic!("not a creation") };
        harness.give(ManagerInput::FaceCreated { txn, result: Err(error) });
        let response = harness.response();
        assert_eq!((response.code, response.text.as_str()), (code, text));
        assert_eq!(response.body.is_some(), code == 409);
    }
}

#[test]
fn too_many_at_once() {
    let config = ManagerConfig { pending_max: 2, ..ManagerConfig::default() };
    let mut harness = Harness::with_config(config);
    for host in 1..=2 {
        let uri = format!("tcp4://192.0.2.{host}:6363");
        harness.send(Command::FacesCreate, &create(&uri, |_| ()));
        assert!(harness.out.data.is_empty());
    }
    let response = harness.command(Command::FacesCreate, &create("tcp4://192.0.2.3:6363", |_| ()));
    assert_eq!(response.code, 500);
    assert_eq!(harness.manager.stats().overflows, 1);
    // A transaction that the driver never answers is removed.
    let wakeup = harness.manager.next_wakeup().unwrap();
    harness.drain();
    harness.advance_ms(wakeup.ns_since(harness.now) / 1_000_000 + 1);
    assert_eq!(harness.manager.next_wakeup(), None);
    harness.send(Command::FacesCreate, &create("tcp4://192.0.2.3:6363", |_| ()));
    assert!(matches!(harness.action(), Action::CreateFace { .. }));
}

#[test]
fn changes_faces() {
    let mut harness = Harness::new();
    let missing = parameters(|p| p.face_id = Some(FaceId(999)));
    assert_eq!(harness.command(Command::FacesUpdate, &missing).code, 404);

    let bad = parameters(|p| {
        p.face_id = Some(PEER);
        p.flags = Some(face_flags::LOCAL_FIELDS | face_flags::CONGESTION_MARKING);
        p.mask = p.flags;
        p.mtu = Some(10);
    });
    let response = harness.command(Command::FacesUpdate, &bad);
    assert_eq!((response.code, response.text.as_str()), (409, "Invalid properties specified"));
    let body_of_bad = response.body.unwrap();
    assert_eq!(body_of_bad.flags, Some(face_flags::LOCAL_FIELDS));
    assert_eq!((body_of_bad.mask, body_of_bad.mtu), (Some(face_flags::LOCAL_FIELDS), Some(10)));

    // A Unix connection needs no reliability.
    let unix = parameters(|p| {
        p.flags = Some(face_flags::LP_RELIABILITY);
        p.mask = p.flags;
    });
    let response = harness.command(Command::FacesUpdate, &unix);
    assert_eq!(response.code, 409, "{response:?}");
    assert_eq!(response.body.unwrap().flags, Some(face_flags::LP_RELIABILITY));

    // The sender's own face: clients turn on local fields this way.
    let own = parameters(|p| {
        p.flags = Some(face_flags::LOCAL_FIELDS);
        p.mask = Some(face_flags::LOCAL_FIELDS);
    });
    harness.send(Command::FacesUpdate, &own);
    let changes = FaceChanges { local_fields: Some(true), ..FaceChanges::default() };
    let Action::UpdateFace { txn, face: updated, changes: asked } = harness.action() else {
        panic!("not an update")
    };
    assert_eq!((updated, asked), (CLIENT, changes));
    let mut info = face(CLIENT, "fd://20", FaceScope::Local);
    info.flags |= face_flags::LOCAL_FIELDS;
    harness.give(ManagerInput::FaceUpdated { txn, result: Ok(info.clone()) });
    let body = body(&harness.response());
    assert_eq!((body.face_id, body.flags, body.mask), (Some(CLIENT), Some(info.flags), None));
    assert_eq!(body.uri, None);

    harness.send(Command::FacesUpdate, &own);
    let Action::UpdateFace { txn, .. } = harness.action() else { panic!("not an update") };
    harness.give(ManagerInput::FaceUpdated { txn, result: Err(FaceError::NotFound) });
    assert_eq!(harness.response().code, 404);
}

#[test]
fn destroys_faces() {
    let mut harness = Harness::new();
    let destroy = parameters(|p| p.face_id = Some(PEER));
    assert_eq!(body(&harness.command(Command::FacesDestroy, &destroy)), destroy);
    assert_eq!(harness.action(), Action::DestroyFace { face: PEER });
    let missing = parameters(|p| p.face_id = Some(FaceId(999)));
    assert_eq!(harness.command(Command::FacesDestroy, &missing).code, 200);
    assert!(harness.drain().actions.is_empty());
}

#[test]
fn configures_the_store() {
    let mut harness = Harness::new();
    let asked = parameters(|p| {
        p.capacity = Some(20000);
        p.flags = Some(0);
        p.mask = Some(1);
    });
    let body = body(&harness.command(Command::CsConfig, &asked));
    assert_eq!((body.capacity, body.flags, body.mask), (Some(20000), Some(2), None));
    let settings = StoreSettings { capacity_bytes: 20000 * 8192, admit: false, serve: true };
    assert_eq!(harness.action(), Action::ConfigureStore(settings));
    let nothing = harness.command(Command::CsConfig, &ControlParameters::default());
    assert_eq!(crate::harness::body(&nothing), body);
    assert!(harness.drain().actions.is_empty());
    let huge = parameters(|p| p.capacity = Some(u64::MAX));
    assert_eq!(harness.command(Command::CsConfig, &huge).code, 200);
}

#[test]
fn erases_in_batches() {
    let mut harness = Harness::new();
    for (count, limit, erased, more, capacity) in [
        (None, 256, 256, true, Some(256)),
        (None, 256, 256, false, None),
        (Some(256), 256, 256, true, None),
        (Some(5), 5, 3, false, None),
    ] {
        let erase = parameters(|p| {
            p.name = Some(name("/data"));
            p.count = count;
        });
        harness.send(Command::CsErase, &erase);
        let Action::EraseStore { txn, prefix, limit: asked } = harness.action() else {
            panic!("not an erasure")
        };
        assert_eq!((prefix, asked), (name("/data"), limit));
        harness.give(ManagerInput::StoreErased { txn, erased, more });
        let body = body(&harness.response());
        assert_eq!(body.name, Some(name("/data")));
        assert_eq!((body.count, body.capacity), (Some(erased), capacity));
    }
}

#[test]
fn reload_answers_with_its_outcome() {
    let mut harness = Harness::new();
    for (result, code, text) in [
        (Ok("1 face added".to_owned()), 200, "1 face added"),
        (Err("weir.toml: line 3".to_owned()), 409, "weir.toml: line 3"),
    ] {
        harness.send(Command::RouterReload, &parameters(|_| ()));
        let Action::Reload { txn } = harness.action() else { panic!("not a reload") };
        harness.give(ManagerInput::Reloaded { txn, result });
        let response = harness.response();
        assert_eq!((response.code, &*response.text), (code, text));
    }
    harness.send(Command::RouterReload, &parameters(|_| ()));
    let Action::Reload { txn } = harness.action() else { panic!("not a reload") };
    harness.give(ManagerInput::Reloaded { txn, result: Err("ä".repeat(9000)) });
    assert_eq!(harness.response().text.len(), 4096, "the answer must fit into a packet");
}

#[test]
fn unset_keeps_choice_of_a_command() {
    let strategy = |word: &str| name(&format!("/localhost/nfd/strategy/{word}"));
    let set = |word| ManagerInput::SetStrategy { prefix: name("/a"), strategy: strategy(word) };
    let unset = |word| ManagerInput::UnsetStrategy { prefix: name("/a"), strategy: strategy(word) };
    let mut harness = Harness::new();
    harness.drain();
    harness.give(set("multicast"));
    harness.action();
    harness.give(unset("multicast"));
    let removed = Action::SetStrategy { prefix: name("/a"), strategy: None };
    assert_eq!(harness.action(), removed);
    harness.give(set("multicast"));
    harness.action();
    let chosen = parameters(|p| (p.name, p.strategy) = (Some(name("/a")), Some(strategy("asf"))));
    assert_eq!(harness.command(Command::StrategyChoiceSet, &chosen).code, 200);
    harness.drain();
    harness.give(unset("multicast"));
    assert!(harness.out.actions.is_empty(), "a command has chosen asf since");
    // The strategy of the root cannot be missing.
    let root = |strategy| ManagerInput::SetStrategy { prefix: Name::new(), strategy };
    harness.give(root(strategy("multicast")));
    harness.action();
    harness
        .give(ManagerInput::UnsetStrategy { prefix: Name::new(), strategy: strategy("multicast") });
    let Action::SetStrategy { strategy: Some(default), .. } = harness.action() else {
        panic!("no strategy")
    };
    assert!(default.to_string().contains("best-route"), "{default}");
}

#[test]
fn chooses_strategies() {
    let mut harness = Harness::new();
    let mut choose = |prefix: &str, strategy: &str| {
        let asked = parameters(|p| {
            p.name = Some(name(prefix));
            p.strategy = Some(name(strategy));
        });
        let response = harness.command(Command::StrategyChoiceSet, &asked);
        let instance = response.body.and_then(|body| body.strategy).map(|name| name.to_string());
        (response.code, instance, response.text, harness.drain().actions.len())
    };
    let base = "/localhost/nfd/strategy";
    let multicast = format!("{base}/multicast/v=5");
    let (code, instance, _, actions) = choose("/s", &format!("{base}/multicast"));
    assert_eq!((code, instance.as_deref(), actions), (200, Some(multicast.as_str()), 1));
    // Nothing changes, so there is no action.
    assert_eq!(choose("/s", &multicast).3, 0);
    let with = format!("{multicast}/retx-suppression-initial~20/retx-suppression-multiplier~1.5");
    assert_eq!(choose("/s", &with).1, Some(with.clone()));

    // NFD's strategies with NFD's versions. Some have parameters.
    for (word, version) in [("asf", 5), ("random", 1), ("access", 1), ("self-learning", 1)] {
        let full = format!("{base}/{word}/v={version}");
        let (code, instance, _, actions) = choose("/s", &format!("{base}/{word}"));
        assert_eq!((code, instance, actions), (200, Some(full.clone()), 1));
        assert_eq!(
            choose("/s", &format!("{full}/retx-suppression-max~300")).0 == 200,
            word == "asf"
        );
    }
    let with = format!("{base}/asf/v=5/probing-interval~30000/max-timeouts~5");
    assert_eq!(choose("/s", &with).1, Some(with.clone()));
    let (code, _, text, _) = choose("/s", &format!("{base}/asf/v=4"));
    assert_eq!(code, 409);
    assert_eq!(text, "Error instantiating strategy: asf does not support version 4");
    assert_eq!(choose("/s", &format!("{base}/asf/v=6")).2, "Strategy not registered");
    assert_eq!(choose("/s", &format!("{base}/asf/v=5/probing-interval~500")).0, 409);

    assert_eq!(choose("/s", &format!("{base}/self-learned")).0, 404);
    assert_eq!(choose("/s", &format!("{base}/multicast/v=6")).2, "Strategy not registered");
    assert_eq!(choose("/s", "/").0, 404);
    let (code, _, text, _) = choose("/s", &format!("{base}/multicast/v=4"));
    assert_eq!(code, 409);
    assert_eq!(text, "Error instantiating strategy: multicast does not support version 4");
    assert_eq!(choose("/s", &format!("{multicast}/nonsense")).0, 409);
    assert_eq!(choose("/s", &format!("{multicast}/color~red")).0, 409);
    assert_eq!(choose("/s", &format!("{multicast}/retx-suppression-max~x")).0, 409);
    assert_eq!(choose("/s", &format!("{multicast}/retx-suppression-multiplier~NaN")).0, 409);
    // Parameters that the strategies refuse are not answered with success.
    assert_eq!(choose("/s", &format!("{multicast}/retx-suppression-multiplier~1001")).0, 409);
    assert_eq!(choose("/s", &format!("{multicast}/retx-suppression-initial~0")).0, 409);
    assert_eq!(choose("/s", &format!("{multicast}/retx-suppression-max~4294967296")).0, 409);
    assert_eq!(choose("/s", &format!("{multicast}/retx-suppression-max~5")).0, 409);

    // Each strategy has its own parameters.
    let multipath = format!("{base}/multipath/v=1");
    let with = format!("{multipath}/part~300:0-99/weight~301:3");
    let instance = choose("/s", &with).1.unwrap();
    assert_eq!(name(&instance), name(&with));
    assert_eq!(choose("/s", &format!("{multicast}/part~300:0-99")).0, 409);
    let (code, _, text, _) = choose("/s", &format!("{multipath}/part~300:9-0"));
    assert_eq!(code, 409);
    assert!(text.ends_with("`part~300:9-0`: its last segment is before its first"), "{text}");

    // The answer has no room to repeat it.
    let parts = (0..256_u32).map(|at| format!("/part~{}:{at}00000-{at}99999", 300 + at % 5));
    let (code, instance, _, actions) = choose("/s", &(multipath + &parts.collect::<String>()));
    assert_eq!((code, instance, actions), (200, None, 1));

    let unset = parameters(|p| p.name = Some(name("/s")));
    assert_eq!(body(&harness.command(Command::StrategyChoiceUnset, &unset)), unset);
    assert_eq!(harness.action(), Action::SetStrategy { prefix: name("/s"), strategy: None });
    assert_eq!(harness.command(Command::StrategyChoiceUnset, &unset).code, 200);
    assert!(harness.drain().actions.is_empty());
}

#[test]
fn answers_what_nfd_ignores() {
    let mut harness = Harness::new();
    for uri in [
        "/localhost/nfd",
        "/localhost/nfd/rib",
        "/localhost/nfd/rib/reticulate/x",
        "/localhost/nfd/rib/announce",
        "/localhost/nfd/splines/list",
        "/localhop/nfd/rib/list",
        "/example",
    ] {
        harness.interest(&Interest::new(name(uri)).nonce(1).encode());
        harness.assert_silent();
    }
    assert_eq!(harness.manager.stats().ignored, 7);
}

/// NFD does not answer them, and its clients wait until they time out.
#[test]
fn malformed_commands_are_answered() {
    let mut harness = Harness::new();
    for uri in [
        "/localhost/nfd/rib/register",
        "/localhost/nfd/rib/register/x",
        "/localhost/nfd/faces/update",
        // ControlParameters with a FacePersistency of 7; with a FaceId of three octets; with a
        // malformed Name; with a Uri that is not text.
        "/localhost/nfd/faces/update/h%03%85%01%07",
        "/localhost/nfd/faces/destroy/h%05i%03%01%02%03",
        "/localhost/nfd/rib/unregister/h%03%07%01%08",
        "/localhost/nfd/faces/create/h%03r%01%FF",
        "/localhost/nfd/cs/config/h%03%83%01",
    ] {
        harness.interest(&Interest::new(name(uri)).nonce(1).encode());
        let response = harness.response();
        assert_eq!(response.code, 400, "{uri}: {response:?}");
        assert!(response.text.starts_with("malformed command: "), "{uri}: {response:?}");
    }
    assert_eq!(harness.manager.stats().ignored, 0);
}

/// NFD's clients send the largest number that they can.
#[test]
fn routes_without_limit_do_not_expire() {
    let mut harness = Harness::new();
    for (period_ms, expires) in [(i64::MAX as u64, false), (u64::MAX, false), (60_000, true)] {
        let parameters = ControlParameters {
            name: Some(name("/for/ever")),
            expiration_period_ms: Some(period_ms),
            ..ControlParameters::default()
        };
        assert_eq!(harness.command(Command::RibRegister, &parameters).code, 200);
        let (_, mut routes) =
            harness.manager.rib().iter().find(|(found, _)| **found == name("/for/ever")).unwrap();
        assert_eq!(routes.next().unwrap().expires.is_some(), expires, "{period_ms}");
    }
}
