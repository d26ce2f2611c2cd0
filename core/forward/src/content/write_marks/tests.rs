extern crate std;

use super::*;

const MIB: u64 = 1 << 20;
const DATA_BYTES: u64 = 8 << 10;

/// A consumer that multiplies its rate by 0.7 for a mark, at most once in a round trip, and a disk.
struct Path {
    marks: WriteMarks,
    now: Instant,
    backlog: WriteBacklog,
    rate: f64,
    disk_rate: f64,
    decreased_at: Instant,
    disk_credit: f64,
    highest: u64,
}

impl Path {
    fn new(disk_rate: f64) -> Self {
        Self {
            marks: WriteMarks::default(),
            now: Instant::from_ns(1),
            backlog: WriteBacklog {
                bytes: 0,
                bytes_max: 64 * MIB,
                offered_bytes: 0,
                written_bytes: 0,
            },
            rate: 300e6,
            disk_rate,
            decreased_at: Instant::ZERO,
            disk_credit: 0.0,
            highest: 0,
        }
    }

    /// One Data packet arrives, and the disk writes what it can in the meantime.
    fn step(&mut self, rtt_ns: u64) {
        let gap_s = DATA_BYTES as f64 / self.rate;
        self.now = self.now.plus_ns((gap_s * 1e9) as u64);
        self.disk_credit = (self.disk_credit + gap_s * self.disk_rate).min(1e6);
        while self.disk_credit >= 262_144.0 && self.backlog.bytes > 0 {
            let bytes = self.backlog.bytes.min(262_144);
            self.disk_credit -= bytes as f64;
            self.backlog.bytes -= bytes;
            self.backlog.written_bytes += bytes;
        }
        self.backlog.bytes += DATA_BYTES;
        self.backlog.offered_bytes = self.backlog.bytes;
        self.highest = self.highest.max(self.backlog.bytes);
        if self.marks.is_next_marked(self.now, self.backlog) {
            if self.now >= self.decreased_at.plus_ns(rtt_ns) {
                self.rate = (self.rate * 0.7).max(1e6);
                self.decreased_at = self.now;
            }
        } else {
            self.rate = (self.rate * 1.02).min(300e6);
        }
    }
}

#[test]
fn consumer_converges_to_the_disk_rate() {
    for disk_rate in [12e6, 40e6, 100e6, 200e6] {
        for rtt_ns in [200_000, 5_000_000] {
            let mut path = Path::new(disk_rate);
            let second = Instant::from_ns(5 * NS_PER_S);
            while path.now < second {
                path.step(rtt_ns);
            }
            let (began, written) = (path.now, path.backlog.written_bytes);
            while path.now < began.plus_ns(10 * NS_PER_S) {
                path.step(rtt_ns);
            }
            let rate = (path.backlog.written_bytes - written) as f64 / 10.0;
            let share = rate / disk_rate;
            assert!(share > 0.75, "{share} of {disk_rate} at {rtt_ns}");
            assert!(path.highest < path.backlog.bytes_max, "{} {disk_rate}", path.highest);
        }
    }
}

#[test]
fn marks_nothing_while_the_disk_keeps_up() {
    let mut path = Path::new(400e6);
    for _ in 0..500_000 {
        path.step(200_000);
    }
    assert!(path.rate > 299e6);
}
