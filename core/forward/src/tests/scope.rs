//! `/localhost` and `/localhop`.

use weir_wire::PacketView;

use super::*;
use crate::content::decision::StoredData;
use crate::pass::{Pass, ReceivedPacket, query_of};

#[test]
fn localhost_never_crosses() {
    let mut bed = Bed::new();
    bed.route("/localhost/app", &[(U, 0), (LOCAL2, 1)]);
    assert!(bed.ask(U, &Ask::new("/localhost/app", 1)).is_empty());
    assert_eq!(bed.drops(DropReason::Scope), 1);
    let out = bed.ask(LOCAL, &Ask::new("/localhost/app", 2));
    assert_eq!(sent(&out), vec![(LOCAL2, PacketKind::Interest)]);
    assert!(bed.answer(U, data("/localhost/app", 0)).is_empty());
    assert_eq!(bed.drops(DropReason::Scope), 2);
    let out = bed.answer(LOCAL2, data("/localhost/app", 0));
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Data)]);
}

#[test]
fn localhop_goes_one_hop() {
    let mut bed = Bed::new();
    bed.route("/localhop/x", &[(V, 0), (LOCAL2, 1)]);
    let out = bed.ask(LOCAL, &Ask::new("/localhop/x/1", 1));
    assert_eq!(sent(&out), vec![(V, PacketKind::Interest)]);
    let out = bed.ask(U, &Ask::new("/localhop/x/2", 2));
    assert_eq!(sent(&out), vec![(LOCAL2, PacketKind::Interest)], "not on to a third host");
}

#[test]
fn nothing_goes_back_where_it_came_from_but_on_radio() {
    let mut bed = Bed::new();
    bed.route("/a", &[(U, 0)]);
    bed.route("/r", &[(RADIO, 0)]);
    let out = bed.ask(U, &Ask::new("/a", 1));
    assert_eq!(out[0].header.nack, Some(NackReason::NoRoute));
    let out = bed.ask(RADIO, &Ask::new("/r", 2));
    assert_eq!(sent(&out), vec![(RADIO, PacketKind::Interest)]);
    let out = bed.answer(RADIO, data("/r", 0));
    assert_eq!(sent(&out), vec![(RADIO, PacketKind::Data)]);
}

#[test]
fn events_that_nobody_waits_for_are_no_drops() {
    let mut bed = Bed::new();
    assert!(
        bed.answer(FaceId::INTERNAL, data("/localhost/nfd/faces/events/seq=0", 1000)).is_empty()
    );
    assert_eq!(bed.drops(DropReason::Unsolicited), 0);
    assert!(bed.answer(LOCAL, data("/localhost/x", 1000)).is_empty());
    assert_eq!(bed.drops(DropReason::Unsolicited), 1);
}

/// What the store has takes the same way out as what comes from a face.
#[test]
fn answers_from_the_store_keep_to_the_scope() {
    for (to, expected) in [(LOCAL, 1), (U, 0)] {
        let mut bed = Bed::new();
        let (header, interest) = (LpHeader::default(), Ask::new("/localhost/app", 1).wire().into());
        let received = ReceivedPacket::new(to, &header, &interest);
        let interest = &InterestView::decode(&interest).unwrap();
        let query = query_of(interest, &bed.router.hash_name(&PacketView::Interest(*interest)));
        let face = *bed.router.tables.faces.find(to).unwrap();
        let pass = Pass { received: &received, interest, query, face, nonce: 1, pending: None };
        let packet = data("/localhost/app", 1000).into();
        let Bed { router, now, out, .. } = &mut bed;
        router.begin_turn(*now, out);
        router.answer(&pass, StoredData { packet, is_marked: false });
        router.finish_turn(out);
        assert_eq!(bed.take().len(), expected);
        assert_eq!(bed.drops(DropReason::Scope), 1 - expected as u64);
    }
}
