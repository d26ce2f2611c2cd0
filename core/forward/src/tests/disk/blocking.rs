//! A store that blocks: Interests queue in front of it.

use super::*;

pub(super) fn blocking(bypass: Bypass, interests_waiting_max: usize) -> BusyPolicy {
    let io = StoreIo::Blocking;
    BusyPolicy { io, interests_waiting_max, ..policy(bypass, Mark::NbCc) }
}

#[test]
fn before_a_store_that_blocks_interests_wait_their_turn() {
    let mut fixture = DiskFixture::with(blocking(Bypass::Off, 4), 0, 1, |disk| {
        disk.filter = FilterKind::Index;
    });
    fixture.put_segments(3);
    fixture.route("/", &[(U, 0)]);
    assert!(fixture.want(0).is_empty());
    assert!(fixture.want(1).is_empty());
    assert!(fixture.ask(V, &Ask::new("/miss", 1)).is_empty(), "even what is not here");
    assert!(fixture.want(2).is_empty());
    assert_eq!(fixture.busy().interests_waiting, 3);
    fixture.collect();
    assert_eq!(fixture.ops.len(), 1, "one at a time");
    assert_eq!(fixture.answer(U, data("/d/seg=2", 0)).len(), 0, "Data is not held up");
    assert_eq!(fixture.drops(DropReason::Unsolicited), 1);
    // Past the bound, a Nack.
    assert!(fixture.ask(V, &Ask::new("/miss/2", 2)).is_empty());
    let out = fixture.ask(V, &Ask::new("/miss/3", 3));
    assert_eq!(out[0].header.nack, Some(NackReason::Congestion));
    assert_eq!((fixture.busy().interests_refused, fixture.drops(DropReason::StoreBusy)), (1, 1));
    assert_eq!(sent(&fixture.step()), vec![(ASKER, PacketKind::Data)]);
    let out = fixture.step();
    let kinds = vec![(ASKER, PacketKind::Data), (U, PacketKind::Interest)];
    assert_eq!(sent(&out), kinds, "in their order");
    let out = fixture.step();
    let kinds = vec![(ASKER, PacketKind::Data), (U, PacketKind::Interest)];
    assert_eq!(sent(&out), kinds);
    assert_eq!((fixture.busy().interests_waiting, fixture.busy().interests_queued), (0, 4));
    assert!(fixture.router.content.disk.reads.is_empty());
}

#[test]
fn what_the_filter_rules_out_does_not_wait_before_a_store_that_blocks() {
    let mut fixture = DiskFixture::new(blocking(Bypass::Off, 4));
    fixture.put_segments(3);
    fixture.route("/", &[(U, 0)]);
    assert!(fixture.want(0).is_empty());
    assert_eq!(sent(&fixture.ask(V, &Ask::new("/miss", 1))), vec![(U, PacketKind::Interest)]);
    assert!(fixture.ask(V, &Ask::new("/miss", 2).prefix()).is_empty(), "who knows what is below");
    assert!(fixture.want(1).is_empty());
    assert_eq!(fixture.busy().interests_waiting, 2);
}

#[test]
fn over_the_threshold_interests_pass_a_store_that_blocks() {
    let mut fixture = DiskFixture::new(blocking(Bypass::Threshold, 100));
    fixture.put_segments(6);
    fixture.route("/d", &[(U, 0)]);
    (0..3).for_each(|segment| assert!(fixture.want(segment).is_empty()));
    assert_eq!(fixture.busy().interests_waiting, 2);
    assert_eq!(sent(&fixture.want(3)), vec![(U, PacketKind::Interest)]);
    assert_eq!(announcements(&mut fixture), vec![(ASKER, 30)]);
    let label = label(U, 1000);
    fixture.fixture.handle(&mut [label]);
    assert!(fixture.want(4).is_empty(), "nowhere to go");
    let marks: Vec<_> =
        (0..4).flat_map(|_| fixture.step()).map(|out| out.header.congestion_mark).collect();
    assert_eq!(marks, vec![0, 0, 0, 1]);
}
