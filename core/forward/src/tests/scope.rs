//! `/localhost` and `/localhop`.

use weir_wire::PacketView;

use super::*;
use crate::content::decision::StoredData;
use crate::incoming::{IncomingInterest, ReceivedPacket, query_of};

#[test]
fn localhost_never_crosses() {
    let mut fixture = Fixture::new();
    fixture.route("/localhost/app", &[(U, 0), (LOCAL2, 1)]);
    assert!(fixture.ask(U, &Ask::new("/localhost/app", 1)).is_empty());
    assert_eq!(fixture.drops(DropReason::Scope), 1);
    let out = fixture.ask(LOCAL, &Ask::new("/localhost/app", 2));
    assert_eq!(sent(&out), vec![(LOCAL2, PacketKind::Interest)]);
    assert!(fixture.answer(U, data("/localhost/app", 0)).is_empty());
    assert_eq!(fixture.drops(DropReason::Scope), 2);
    let out = fixture.answer(LOCAL2, data("/localhost/app", 0));
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Data)]);
}

#[test]
fn localhop_goes_one_hop() {
    let mut fixture = Fixture::new();
    fixture.route("/localhop/x", &[(V, 0), (LOCAL2, 1)]);
    let out = fixture.ask(LOCAL, &Ask::new("/localhop/x/1", 1));
    assert_eq!(sent(&out), vec![(V, PacketKind::Interest)]);
    let out = fixture.ask(U, &Ask::new("/localhop/x/2", 2));
    assert_eq!(sent(&out), vec![(LOCAL2, PacketKind::Interest)], "not to a third host");
}

#[test]
fn only_ad_hoc_faces_return_packets() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fixture.route("/r", &[(RADIO, 0)]);
    let out = fixture.ask(U, &Ask::new("/a", 1));
    assert_eq!(out[0].header.nack, Some(NackReason::NoRoute));
    let out = fixture.ask(RADIO, &Ask::new("/r", 2));
    assert_eq!(sent(&out), vec![(RADIO, PacketKind::Interest)]);
    let out = fixture.answer(RADIO, data("/r", 0));
    assert_eq!(sent(&out), vec![(RADIO, PacketKind::Data)]);
}

#[test]
fn notifications_without_interest_are_no_drops() {
    let mut fixture = Fixture::new();
    assert!(
        fixture
            .answer(FaceId::INTERNAL, data("/localhost/nfd/faces/events/seq=0", 1000))
            .is_empty()
    );
    assert_eq!(fixture.drops(DropReason::Unsolicited), 0);
    assert!(fixture.answer(LOCAL, data("/localhost/x", 1000)).is_empty());
    assert_eq!(fixture.drops(DropReason::Unsolicited), 1);
}

/// Data from the store respects the scope as Data from a face does.
#[test]
fn store_answers_respect_scope() {
    for (to, expected) in [(LOCAL, 1), (U, 0)] {
        let mut fixture = Fixture::new();
        let (header, interest) = (LpHeader::default(), Ask::new("/localhost/app", 1).wire().into());
        let received = ReceivedPacket::new(to, &header, &interest);
        let interest = &InterestView::decode(&interest).unwrap();
        let query = query_of(interest, &fixture.router.hash_name(&PacketView::Interest(*interest)));
        let face = *fixture.router.tables.faces.find(to).unwrap();
        let pass = IncomingInterest {
            received: &received,
            interest,
            query,
            face,
            nonce: 1,
            pit_index: None,
        };
        let packet = data("/localhost/app", 1000).into();
        let Fixture { router, now, out, .. } = &mut fixture;
        router.begin_turn(*now, out);
        router.answer(&pass, StoredData { packet, is_marked: false });
        router.finish_turn(out);
        assert_eq!(fixture.take().len(), expected);
        assert_eq!(fixture.drops(DropReason::Scope), 1 - expected as u64);
    }
}
