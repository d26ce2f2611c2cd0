//! Random Interests, reads, failures and time: every Interest ends.

use super::*;

/// An event of a router with disks.
#[derive(Clone, Debug)]
enum DiskEvent {
    Interest { face: u64, name: u8, prefix: bool, fresh: bool },
    Data { face: u64, name: u8, freshness_ms: u64 },
    Nack { name: u8 },
    Disk { which: usize, fault: u8 },
    Label { face: u64, ms: u64 },
    Pass { ms: u64 },
}

fn happening() -> impl Strategy<Value = DiskEvent> {
    let face = || 256..260_u64;
    prop_oneof![
        6 => (face(), 0..24_u8, any::<bool>(), any::<bool>()).prop_map(
            |(face, name, prefix, fresh)| DiskEvent::Interest { face, name, prefix, fresh }),
        4 => (face(), 0..24_u8, 0..50_u64)
            .prop_map(|(face, name, freshness_ms)| DiskEvent::Data { face, name, freshness_ms }),
        1 => (0..24_u8).prop_map(|name| DiskEvent::Nack { name }),
        6 => (0..8_usize, 0..12_u8).prop_map(|(which, fault)| DiskEvent::Disk { which, fault }),
        1 => (face(), 0..40_u64).prop_map(|(face, ms)| DiskEvent::Label { face, ms }),
        3 => (0..20_u64).prop_map(|ms| DiskEvent::Pass { ms }),
        1 => (0..5_000_u64).prop_map(|ms| DiskEvent::Pass { ms }),
    ]
}

fn name_of(number: u8) -> String {
    match number % 3 {
        0 => format!("/d/seg={}", number / 3),
        1 => format!("/d/{}", number / 3),
        _ => format!("/d/{}/x", number / 3),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// In any sequence of events, no face gets more Data and Nacks than it has requested. Data
    /// matches its Interest. In the end nothing waits, in the PIT or elsewhere.
    #[test]
    fn everything_ends(
        happenings in proptest::collection::vec(happening(), 1..160),
        bypass in 0..3_u8,
        mark in 0..3_u8,
        capacity in prop_oneof![Just(0_u64), Just(4000)],
    ) {
        let busy = BusyPolicy {
            bypass: [Bypass::Off, Bypass::Threshold, Bypass::Adaptive][usize::from(bypass)],
            mark: [Mark::Off, Mark::Ecn, Mark::NbCc][usize::from(mark)],
            ..BusyPolicy::default()
        };
        let mut fixture = DiskFixture::with(busy, capacity, 2, |_| {});
        fixture.route("/d", &[(U, 0), (V, 1)]);
        let mut credit = alloc::collections::BTreeMap::<FaceId, i64>::new();
        let mut note = |happening: Option<&DiskEvent>, out: &[OutPacket]| {
            if let Some(DiskEvent::Interest { face, .. }) = happening {
                *credit.entry(FaceId(*face)).or_default() += 1;
            }
            for packet in out.iter().filter(|packet| kind(packet) != PacketKind::Interest) {
                let left = credit.entry(packet.face).or_default();
                *left -= 1;
                assert!(*left >= 0, "{} gets more than it requested", packet.face);
            }
        };
        for happening in &happenings {
            let out = fixture.play(happening);
            note(Some(happening), &out);
        }
        fixture.collect();
        for _ in 0..1_000 {
            let out = match fixture.ops.is_empty() {
                true => { fixture.pass_ms(50); fixture.take() }
                false => fixture.step(),
            };
            note(None, &out);
            fixture.collect();
        }
        let stats = fixture.router.stats();
        prop_assert_eq!(stats.pit_entries, 0);
        prop_assert_eq!((stats.busy.interests_waiting, stats.store.disk.reads_waiting), (0, 0));
        prop_assert_eq!(fixture.router.content.disk.reads.longest_queue(), 0);
        let waits_end = stats.busy.answered + stats.busy.went_on + stats.busy.overtaken;
        prop_assert!(waits_end <= stats.busy.reads_begun);
        prop_assert_eq!(fixture.router.next_wakeup(), None);
        prop_assert!(fixture.now.as_ns() < 10_000 * NS_PER_S);
    }
}

impl DiskFixture {
    fn play(&mut self, happening: &DiskEvent) -> Vec<OutPacket> {
        match *happening {
            DiskEvent::Interest { face, name, prefix, fresh } => {
                self.nonce += 1;
                let mut ask = Ask::new(&name_of(name), self.nonce);
                ask.can_be_prefix = prefix;
                ask.must_be_fresh = fresh;
                self.ask(FaceId(face), &ask)
            }
            DiskEvent::Data { face, name, freshness_ms } => {
                self.answer(FaceId(face), data(&name_of(name), freshness_ms))
            }
            DiskEvent::Nack { name } => {
                let interest = Packet::from(Ask::new(&name_of(name), self.nonce).wire());
                self.nack(U, NackReason::Congestion, &interest)
            }
            DiskEvent::Disk { which, fault } => {
                self.collect();
                let Some(op) = self.ops.remove(which) else { return Vec::new() };
                let outcome = match fault {
                    0 => DiskOutcome::Failed(DiskFailure::Io),
                    1 if matches!(op.kind, DiskOpKind::ReadRecord { .. }) => {
                        DiskOutcome::Damaged(RecordFault::Checksum)
                    }
                    _ => self.carry_out(&op),
                };
                self.done(op, outcome);
                self.take()
            }
            DiskEvent::Label { face, ms } => {
                let label = label(FaceId(face), ms);
                self.fixture.handle(&mut [label]);
                Vec::new()
            }
            DiskEvent::Pass { ms } => {
                self.pass_ms(ms);
                self.take()
            }
        }
    }
}
