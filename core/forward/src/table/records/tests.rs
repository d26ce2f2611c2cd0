use alloc::vec::Vec;

use weir_base::{Instant, Packet, Rng};
use weir_store::{NameHashes, Query};
use weir_wire::NameView;

use super::*;
use crate::table::measurements::Measurements;
use crate::table::pit::Pit;

type Down = (u64, u32, u32, Instant, Vec<u8>);
type Up = (u64, u32, Instant, Instant, Option<u64>, (u32, u32), bool, u64);

fn down(record: InRecord) -> Down {
    let InRecord { face, face_slot, nonce, expiry, pit_token } = record;
    (face.0, face_slot, nonce, expiry, pit_token.as_slice().to_vec())
}

fn up(record: OutRecord) -> Up {
    let is_sent_once = record.is_sent_once();
    let OutRecord { face, nonce, sent_at, expiry, nacked, flight, strategy_state } = record;
    let nacked = nacked.map(NackReason::code);
    (face.0, nonce, sent_at, expiry, nacked, flight.packed(), is_sent_once, strategy_state)
}

/// An entry, and plain vectors that must hold the same records.
struct Fixture {
    pit: Pit,
    entry: u32,
    rng: Rng,
    measurements: Measurements,
    downstreams: Vec<InRecord>,
    upstreams: Vec<OutRecord>,
    nonce: u32,
    strategy_state: u64,
}

const VALUE: &[u8] = b"\x08\x01a";

fn query() -> Query<'static> {
    let name = NameView::from_value(VALUE).unwrap();
    let hashes = NameHashes { whole: 7, parent: None, grandparent: None };
    Query { name, hashes, can_be_prefix: false, must_be_fresh: false }
}

impl Fixture {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let mut pit = Pit::new(Instant::ZERO, 10, 1 << 20, false);
        let first = random_downstream(&mut rng);
        let entry = pit.insert(&query(), Packet::from(VALUE), (0, 3), None, &first);
        let mut measurements = Measurements::default();
        measurements.insert(Instant::ZERO);
        let (downstreams, nonce) = (Vec::from([first]), first.nonce);
        let upstreams = Vec::new();
        Self { pit, entry, rng, measurements, downstreams, upstreams, nonce, strategy_state: 0 }
    }

    fn random_upstream(&mut self) -> OutRecord {
        let is_like_first = self.rng.below(2) == 0;
        let record = self.downstreams.first().filter(|_| is_like_first).copied();
        let record = record.unwrap_or_else(|| random_downstream(&mut self.rng));
        let sent_at = Instant::from_ns(self.rng.below(5).into());
        let measured = if self.rng.below(3) > 0 { 0 } else { u32::MAX };
        OutRecord {
            face: FaceId(self.rng.below(4).into()),
            nonce: record.nonce,
            sent_at,
            expiry: record.expiry,
            nacked: (self.rng.below(4) == 0).then_some(NackReason::Other(1 << 40)),
            flight: self.measurements.begin(sent_at, measured),
            strategy_state: u64::from(self.rng.below(4) == 0),
        }
    }

    fn step(&mut self) {
        let (at, face) = (self.rng.below(3) as usize, FaceId(self.rng.below(4).into()));
        match self.rng.below(7) {
            0 => {
                let record = random_downstream(&mut self.rng);
                self.pit.add_downstream(self.entry, record);
                self.downstreams.push(record);
            }
            1 | 2 => {
                let record = self.random_upstream();
                self.pit.add_upstream(self.entry, &record);
                self.upstreams.push(record);
            }
            3 if at < self.downstreams.len() => {
                let record = random_downstream(&mut self.rng);
                self.pit.lists_mut(self.entry).downstreams[at] = record;
                self.downstreams[at] = record;
            }
            4 if at < self.upstreams.len() => {
                let record = self.random_upstream();
                self.pit.lists_mut(self.entry).upstreams[at] = record;
                self.upstreams[at] = record;
            }
            5 => {
                let entry = self.pit.entry_mut(self.entry);
                let removed = entry.remove_downstream(|record| record.face == face);
                let at = self.downstreams.iter().position(|record| record.face == face);
                let expected = at.map(|at| self.downstreams.swap_remove(at));
                assert_eq!(removed.map(down), expected.map(down));
            }
            6 => {
                self.nonce = self.rng.next_u32();
                let packet = Packet::from(VALUE);
                self.pit.replace_interest(self.entry, packet, (0, 3), self.nonce, None);
                self.strategy_state += 1;
                self.pit.lists_mut(self.entry).strategy_state = self.strategy_state;
            }
            _ => {}
        }
    }

    fn check(&self) {
        let entry = self.pit.entry(self.entry);
        let downs: Vec<Down> = self.downstreams.iter().copied().map(down).collect();
        let ups: Vec<Up> = self.upstreams.iter().copied().map(up).collect();
        assert_eq!(entry.downstreams().map(down).collect::<Vec<_>>(), downs);
        assert_eq!(entry.upstreams().map(up).collect::<Vec<_>>(), ups);
        let (mut seen_down, mut seen_up) = (Vec::new(), Vec::new());
        let here = [entry.inline_downstream()];
        seen_down.extend(entry.all_downstreams(&here).iter().copied().map(down));
        let here = [entry.inline_upstream()];
        seen_up.extend(entry.all_upstreams(&here).iter().copied().map(up));
        assert_eq!((seen_down, seen_up), (downs, ups));
        assert_eq!(entry.has_downstreams(), !self.downstreams.is_empty());
        assert_eq!(entry.has_upstreams(), !self.upstreams.is_empty());
        let first = self.upstreams.first().map(|record| record.face);
        assert!(
            (0..5)
                .all(|face| entry.is_first_upstream(FaceId(face)) == (first == Some(FaceId(face))))
        );
        assert_eq!((entry.nonce(), entry.strategy_state()), (self.nonce, self.strategy_state));
    }
}

fn random_downstream(rng: &mut Rng) -> InRecord {
    let token_len = [0, 4, 12, 13, 32][rng.below(5) as usize];
    InRecord {
        face: FaceId(rng.below(4).into()),
        face_slot: rng.below(9),
        nonce: rng.below(3),
        expiry: Instant::from_ns(rng.below(3).into()),
        pit_token: PitToken::new(&[rng.next_u32() as u8; 32][..token_len]).unwrap(),
    }
}

#[test]
fn inline_and_listed_records_are_equal() {
    for seed in 0..500 {
        let mut fixture = Fixture::new(seed);
        let empty = fixture.pit.bytes() - fixture.pit.entry(fixture.entry).bytes();
        for _ in 0..12 {
            fixture.check();
            fixture.step();
        }
        fixture.check();
        let taken = fixture.pit.entry(fixture.entry).bytes();
        assert_eq!(fixture.pit.bytes(), empty + taken, "the PIT counts the memory of its entries");
        fixture.pit.remove(fixture.entry);
        let left = fixture.pit.bytes();
        fixture.pit.insert(
            &query(),
            Packet::from(VALUE),
            (0, 3),
            None,
            &InRecord { pit_token: PitToken::EMPTY, ..random_downstream(&mut fixture.rng) },
        );
        let again = fixture.pit.entry(fixture.entry);
        assert!(
            again.lists().is_none() && !again.has_upstreams(),
            "nothing of the previous entry is left"
        );
        assert!(fixture.pit.bytes() > left);
    }
}
