//! Status datasets and notifications.

use weir_base::FaceId;
use weir_manage::commands::{Command, parse_response};
use weir_manage::{
    Action, ChannelStatus, CsDevice, CsInfo, DatasetError, DatasetFetch, Element, FaceCounters,
    FaceCrowding, FaceEventKind, FaceEventNotification, FaceInfo, FaceQueryFilter, FaceScope,
    FaceStatus, FibEntry, GeneralStatus, ManagerInput, RibEntry, Sender, Snapshot, SnapshotKind,
    StrategyChoice,
};
use weir_wire::{DataView, Interest, InterestView, Name};

use crate::harness::{CLIENT, Harness, PEER, UNIX_MS, face, name, parameters};

const CROWDING: FaceCrowding = FaceCrowding { refused: 8, displaced: 9, stalled: 10 };

fn status(info: FaceInfo) -> FaceStatus {
    let counters = FaceCounters {
        in_interests: info.face_id.0,
        in_runs: info.face_id.0 % 3,
        in_run_interests: 64 * (info.face_id.0 % 3),
        out_run_interests: info.face_id.0 % 2,
        ..FaceCounters::default()
    };
    let marking_policy = info.uri.starts_with("udp").then(|| "rem".to_owned());
    let heard_ms_ago = Some(70);
    FaceStatus { info, expiration_period_ms: None, counters, marking_policy, heard_ms_ago }
}

fn device(path: &str) -> CsDevice {
    CsDevice { path: path.to_owned(), written_bytes: 1 << 40, is_dead: 1, ..CsDevice::default() }
}

impl Harness {
    /// Answers snapshots as a driver would.
    fn answer_snapshots(&mut self) {
        for action in std::mem::take(&mut self.out.actions) {
            let Action::Snapshot { txn, kind } = action else { panic!("{action:?}") };
            let snapshot = match kind {
                SnapshotKind::Faces => {
                    Snapshot::Faces(self.manager.faces().cloned().map(status).collect())
                }
                SnapshotKind::Store => Snapshot::Store(CsInfo {
                    entries: 3,
                    hits: 4,
                    bytes: Some(5),
                    served_next_hop_bytes: Some(8),
                    devices: vec![device("/dev/a"), device("/dev/b")],
                    ..CsInfo::default()
                }),
                SnapshotKind::General => Snapshot::General(GeneralStatus {
                    pit_entries: 6,
                    in_data: 7,
                    crowding: Some(CROWDING),
                    ..GeneralStatus::default()
                }),
            };
            self.give(ManagerInput::Snapshot { txn, snapshot });
        }
    }

    /// Fetches a dataset as a client would. Returns its Content and the number of segments.
    fn fetch_name(&mut self, dataset: Name) -> Result<(Vec<u8>, usize), DatasetError> {
        let mut fetch = DatasetFetch::new(dataset);
        for segments in 1.. {
            let interest = fetch.interest(segments);
            self.interest(&interest);
            self.answer_snapshots();
            assert_eq!(self.out.data.len(), 1, "one Data for an Interest");
            let reply = self.out.data.remove(0);
            let data = DataView::decode(&reply.packet).unwrap();
            let view = InterestView::decode(&interest).unwrap();
            let matches =
                view.name == data.name || view.can_be_prefix && view.name.is_prefix_of(data.name);
            assert!(matches, "{} does not answer {}", data.name, view.name);
            assert_eq!(data.freshness_ms, 1000);
            if data.content_type == 0 {
                assert!(reply.no_cache);
            }
            if fetch.on_data(&data)? {
                return Ok((fetch.into_content(), segments as usize));
            }
        }
        unreachable!()
    }

    fn fetch(&mut self, dataset: &str) -> Vec<u8> {
        self.fetch_name(name(&format!("/localhost/nfd/{dataset}"))).unwrap().0
    }
}

/// ndn-cxx's integration test `Consumer/ExpressInterestData` (a362e65) sends `/localhost`.
#[test]
fn prefix_of_all_datasets_is_answered() {
    let mut harness = Harness::new();
    harness.give(ManagerInput::Channels(vec!["tcp4://0.0.0.0:6363".to_owned()]));
    for uri in ["/localhost", "/localhost/nfd"] {
        let interest = Interest::new(name(uri)).can_be_prefix(true).nonce(1);
        harness.interest(&interest.encode());
        let reply = harness.out.data.pop().expect("a dataset");
        let data = DataView::decode(&reply.packet).unwrap();
        assert!(name("/localhost/nfd/faces/channels").as_view().is_prefix_of(data.name));
        assert!(reply.no_cache && harness.out.data.is_empty());
        let channels = ChannelStatus::decode_all(data.content).unwrap();
        assert_eq!(channels[0].local_uri, "tcp4://0.0.0.0:6363");
        harness.interest_from(PEER, Sender::Remote, &interest.encode());
        harness.assert_silent();
    }
    for (uri, can_be_prefix) in
        [("/localhost", false), ("/localhost/x", true), ("/local", true), ("/", true)]
    {
        let interest = Interest::new(name(uri)).can_be_prefix(can_be_prefix).nonce(1);
        harness.interest(&interest.encode());
        harness.assert_silent();
    }
}

#[test]
fn tables() {
    let mut harness = Harness::new();
    let route = parameters(|p| {
        p.name = Some(name("/r"));
        p.face_id = Some(PEER);
        p.cost = Some(3);
        p.origin = Some(255);
        p.expiration_period_ms = Some(5000);
    });
    assert_eq!(harness.command(Command::RibRegister, &route).code, 200);
    harness.advance_ms(2000);

    let rib = RibEntry::decode_all(&harness.fetch("rib/list")).unwrap();
    assert_eq!(
        rib.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>(),
        ["/r", "/localhost", "/localhost/nfd"]
    );
    let found = rib[0].routes[0];
    assert_eq!((found.face_id, found.origin, found.cost, found.flags), (PEER, 255, 3, 1));
    assert_eq!(found.expiration_period_ms, Some(3000));

    let fib = FibEntry::decode_all(&harness.fetch("fib/list")).unwrap();
    assert_eq!(fib.len(), 3);
    assert_eq!((fib[0].next_hops[0].face_id, fib[0].next_hops[0].cost), (PEER, 3));

    let choices = StrategyChoice::decode_all(&harness.fetch("strategy-choice/list")).unwrap();
    assert_eq!(choices.len(), 4);
    assert_eq!(choices[0].name, Name::new());

    assert!(harness.fetch("faces/channels").is_empty(), "an empty dataset is one empty segment");
    harness.give(ManagerInput::Channels(vec!["udp4://0.0.0.0:6363".into()]));
    let channels = ChannelStatus::decode_all(&harness.fetch("faces/channels")).unwrap();
    assert_eq!(channels, [ChannelStatus { local_uri: "udp4://0.0.0.0:6363".into() }]);
}

#[test]
fn counters() {
    let mut harness = Harness::new();
    let info = CsInfo::decode(&harness.fetch("cs/info")).unwrap();
    assert_eq!((info.capacity, info.flags, info.entries, info.hits), (65536, 3, 3, 4));
    assert_eq!((info.bytes, info.capacity_bytes), (Some(5), Some(512 << 20)));
    assert_eq!((info.served_disk_bytes, info.served_next_hop_bytes), (None, Some(8)));
    assert_eq!(info.devices, [device("/dev/a"), device("/dev/b")]);

    let general = GeneralStatus::decode_content(&harness.fetch("status/general")).unwrap();
    assert!(general.version.starts_with("weir "), "{}", general.version);
    assert_eq!(general.current_unix_ms, UNIX_MS);
    // The wall clock may be set. The uptime is still the difference.
    harness.advance_ms(5000);
    harness.unix_ms = UNIX_MS - 1_000_000;
    let later = GeneralStatus::decode_content(&harness.fetch("status/general")).unwrap();
    let uptime_ms = |status: &GeneralStatus| status.current_unix_ms - status.start_unix_ms;
    assert_eq!(uptime_ms(&later), uptime_ms(&general) + 5000);
    harness.unix_ms = UNIX_MS;
    assert_eq!((general.fib_entries, general.pit_entries, general.in_data), (2, 6, 7));
    assert_eq!(general.crowding, Some(CROWDING));

    let faces = FaceStatus::decode_all(&harness.fetch("faces/list")).unwrap();
    let ids: Vec<_> = faces.iter().map(|f| (f.info.face_id, f.counters.in_interests)).collect();
    assert_eq!(ids, [(CLIENT, 256), (PEER, 262)]);
    let policies: Vec<_> = faces.iter().map(|face| face.marking_policy.as_deref()).collect();
    assert_eq!(policies, [None, Some("rem")]);
}

/// Bytes of content in one segment, as in NFD.
const SEGMENT_BYTES: usize = 8000;

#[test]
fn many_segments() {
    let mut harness = Harness::new();
    for id in 1000..1400 {
        harness.add_face(face(FaceId(id), &format!("udp4://192.0.2.1:{id}"), FaceScope::NonLocal));
    }
    let (content, segments) = harness.fetch_name(name("/localhost/nfd/faces/list")).unwrap();
    assert_eq!(segments, content.len().div_ceil(SEGMENT_BYTES));
    assert!(segments > 4, "{segments}");
    assert_eq!(FaceStatus::decode_all(&content).unwrap().len(), 402);
    // Versions differ, even within a millisecond.
    let version = |harness: &mut Harness| {
        let interest = DatasetFetch::new(name("/localhost/nfd/faces/list")).interest(7);
        harness.interest(&interest);
        harness.answer_snapshots();
        let packet = harness.out.data.remove(0).packet;
        let data = DataView::decode(&packet).unwrap();
        assert_eq!(data.name.component(5).unwrap().as_segment(), Some(0));
        assert_eq!(data.content.len(), SEGMENT_BYTES);
        data.name.component(4).unwrap().as_version().unwrap()
    };
    assert!(version(&mut harness) < version(&mut harness));
}

#[test]
fn old_versions_are_not_answered() {
    let mut harness = Harness::new();
    let first = DatasetFetch::new(name("/localhost/nfd/rib/list")).interest(7);
    harness.interest(&first);
    let packet = harness.out.data.remove(0).packet;
    let segment = DataView::decode(&packet).unwrap().name.to_name();
    let again = Interest::new(segment).nonce(1).encode();
    harness.interest(&again);
    assert_eq!(harness.out.data.remove(0).packet[..], packet[..], "the same Data");
    for _ in 0..100 {
        harness.interest(&first);
    }
    harness.interest(&again);
    harness.assert_silent();
    harness.interest(&Interest::new(name("/localhost/nfd/rib/list/v=1/seg=0")).nonce(1).encode());
    harness.assert_silent();
}

#[test]
fn queries() {
    let mut harness = Harness::new();
    let query = |filter: &FaceQueryFilter| {
        let mut query = name("/localhost/nfd/faces/query");
        query.append_generic(&filter.encode());
        query
    };
    let scheme = |text: &str| FaceQueryFilter {
        uri_scheme: Some(text.to_owned()),
        ..FaceQueryFilter::default()
    };
    for (filter, expected) in [
        (FaceQueryFilter::default(), vec![CLIENT, PEER]),
        (scheme("udp4"), vec![PEER]),
        (scheme("unix"), vec![CLIENT, PEER]),
        (scheme("tcp4"), vec![]),
        (
            FaceQueryFilter { scope: Some(FaceScope::Local), ..FaceQueryFilter::default() },
            vec![CLIENT],
        ),
        (
            FaceQueryFilter {
                uri: Some("udp4://192.0.2.1:6363".into()),
                face_id: Some(PEER),
                ..FaceQueryFilter::default()
            },
            vec![PEER],
        ),
        (FaceQueryFilter { face_id: Some(FaceId(1)), ..FaceQueryFilter::default() }, vec![]),
    ] {
        let (content, _) = harness.fetch_name(query(&filter)).unwrap();
        let found: Vec<_> = FaceStatus::decode_all(&content)
            .unwrap()
            .into_iter()
            .map(|status| status.info.face_id)
            .collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let malformed = harness.fetch_name(name("/localhost/nfd/faces/query/x")).unwrap_err();
    let DatasetError::Refused(response) = malformed else { panic!("{malformed:?}") };
    assert_eq!((response.code, response.text.as_str()), (400, "Malformed filter"));
}

#[test]
fn notifications() {
    let mut harness = Harness::new();
    let sent = harness.drain().data;
    assert_eq!(sent.len(), 2, "one for each initial face");
    assert_eq!(sent[0].face, FaceId::INTERNAL);
    let data = DataView::decode(&sent[1].packet).unwrap();
    assert_eq!(data.name.to_string(), "/localhost/nfd/faces/events/seq=1");
    let event = FaceEventNotification::decode(data.content).unwrap();
    assert_eq!((event.kind, event.info.face_id), (FaceEventKind::Created, PEER));
    assert_eq!((event.info.mtu, event.info.flags), (None, 4));

    let prefix = name("/localhost/nfd/faces/events");
    let any = Interest::new(prefix.clone()).can_be_prefix(true).must_be_fresh(true).nonce(1);
    harness.interest(&any.encode());
    let packet = harness.out.data.remove(0).packet;
    assert_eq!(packet[..], sent[0].packet[..], "the oldest of the last second");
    harness.advance_ms(1000);
    harness.interest(&any.encode());
    harness.assert_silent();

    let exact = |sequence: u64| {
        let mut name = prefix.clone();
        name.append_sequence(sequence);
        Interest::new(name).nonce(1).encode()
    };
    harness.interest(&exact(1));
    assert_eq!(harness.out.data.remove(0).packet[..], sent[1].packet[..]);
    // The next one does not exist yet, so its Interest waits in the PIT.
    harness.interest(&exact(2));
    harness.assert_silent();
    let info = face(PEER, "udp4://192.0.2.1:6363", FaceScope::NonLocal);
    harness.give(ManagerInput::FaceEvent { kind: FaceEventKind::Down, info });
    let packet = harness.out.data.remove(0).packet;
    let data = DataView::decode(&packet).unwrap();
    assert_eq!(data.name.to_string(), "/localhost/nfd/faces/events/seq=2");
    let event = FaceEventNotification::decode(data.content).unwrap();
    assert_eq!(event.kind, FaceEventKind::Down);

    // The list is limited: after many more, the first are gone.
    for _ in 0..300 {
        let info = face(PEER, "udp4://192.0.2.1:6363", FaceScope::NonLocal);
        harness.give(ManagerInput::FaceEvent { kind: FaceEventKind::Up, info });
    }
    harness.interest(&exact(1));
    harness.assert_silent();
    harness.interest(&exact(300));
    assert_eq!(harness.out.data.len(), 1);
}

#[test]
fn refused_dataset_is_an_application_nack() {
    let mut harness = Harness::new();
    harness.interest(&Interest::new(name("/localhost/nfd/faces/query/x")).nonce(1).encode());
    let packet = harness.out.data.remove(0).packet;
    let data = DataView::decode(&packet).unwrap();
    assert_eq!(data.content_type, 3);
    assert_eq!(parse_response(&data).unwrap().code, 400);
}
