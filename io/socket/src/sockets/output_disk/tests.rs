//! A producer with a real file and no network.

use std::collections::BTreeMap;
use std::time::Instant as Time;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::TempDir;
use weir_base::units::Size;
use weir_base::{HashKey, Packet, Rng};
use weir_client::monotonic_now;
use weir_disk::{Engine, Faults};
use weir_transport::{Catalog, PathId, Producer, ProducerEvent, ProducerOutbox, ProducerStats};
use weir_wire::{Data, Interest, InterestView, LpHeader, Name, PitToken};

use super::*;
use crate::sockets::ProducerOptions;

const MIB: u64 = 1 << 20;
/// Longer than any operation: only a hang reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const SEGMENTS: u32 = 1500;
/// The default of producers.
const WAIT_NS: u64 = NS_PER_S / 2;

fn name(segment: u32) -> Name {
    let mut name: Name = "/a/v=1".parse().unwrap();
    name.append_segment(segment.into()).clone()
}

fn segment(number: u32) -> Packet {
    let mut content = vec![0; 8000];
    Rng::from_seed(number.into()).fill(&mut content);
    Data::new(name(number)).content(content).encode_with_digest().into()
}

struct Fixture {
    producer: Producer,
    disk: OutputDisk,
    inputs: Vec<ProducerInput>,
    out: ProducerOutbox,
    _folder: TempDir,
}

impl Fixture {
    /// A producer with memory for about 120 of the segments, and a disk of `disk_mib`. It waits for
    /// the disk however long it takes.
    fn new(disk_mib: u64, change: impl FnOnce(&mut DiskFileConfig)) -> Self {
        Self::with(disk_mib, 60 * NS_PER_S, change)
    }

    fn with(
        disk_mib: u64,
        stalled_after_ns: u64,
        change: impl FnOnce(&mut DiskFileConfig),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bytes = Some(disk_mib * MIB);
        let mut config = DiskFileConfig::new(folder.path().join("disk"), bytes);
        change(&mut config);
        let (disk, tier) = OutputDisk::start(config, 8000, stalled_after_ns).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let options =
            ProducerOptions { output_buffer: Size { bytes: MIB }, ..ProducerOptions::default() };
        let config = options.config(HashKey::new([0, 0]));
        let producer = Producer::with_disk(Catalog::new(), config, tier);
        let (inputs, out) = (Vec::new(), ProducerOutbox::default());
        let mut fixture = Self { producer, disk, inputs, out, _folder: folder };
        fixture.run_once();
        fixture
    }

    fn run_once(&mut self) {
        self.disk.take_completions(&mut self.inputs);
        self.producer.handle(monotonic_now(), &mut self.inputs, &mut self.out);
        self.disk.submit(&mut self.out.disk_ops);
    }

    /// Runs as the disk, or a due time, requires, until `is_so` holds.
    fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let began = Time::now();
        while !is_so(self) {
            assert!(began.elapsed() < TEST_TIMEOUT, "{:?}", self.producer.stats());
            let sources = self.disk.sources();
            let mut sources: Vec<PollFd<'_>> =
                sources.iter().map(|source| PollFd::new(*source, PollFlags::POLLIN)).collect();
            let _ = poll(&mut sources, PollTimeout::from(1_u8)).unwrap();
            self.run_once();
        }
    }

    fn put(&mut self, packet: Packet) {
        self.run_until(|fixture| !fixture.producer.is_disk_behind());
        self.inputs.push(ProducerInput::Put(packet));
        self.run_once();
    }

    fn put_all(&mut self) {
        (0..SEGMENTS).for_each(|number| self.put(segment(number)));
    }

    fn send_interest(&mut self, number: u32) {
        let pit_token = PitToken::new(&number.to_be_bytes()).unwrap();
        let header = LpHeader { pit_token, ..LpHeader::default() };
        let packet = Interest::new(name(number)).lifetime_ms(600_000).encode().into();
        self.inputs.push(ProducerInput::Packet { path: PathId(0), header, packet });
        self.run_once();
    }

    /// Requests all segments, publishes again those that reach the application, and returns how
    /// many those were. All served data must be what was published.
    fn request_all(&mut self, rng: &mut Rng) -> usize {
        let mut left: Vec<u32> = (0..SEGMENTS).collect();
        let mut asked = BTreeMap::new();
        let mut wanted = 0;
        while !left.is_empty() || !asked.is_empty() {
            if !left.is_empty() {
                let number = left.swap_remove(rng.below(left.len() as u32) as usize);
                asked.insert(number, ());
                self.send_interest(number);
            }
            let at_most = if left.is_empty() { 0 } else { 30 };
            self.run_until(|fixture| {
                let has_news = !fixture.out.packets.is_empty() || !fixture.out.events.is_empty();
                has_news || asked.len() <= at_most
            });
            for (_, header, packet) in std::mem::take(&mut self.out.packets) {
                assert_eq!(header.nack, None);
                let number = u32::from_be_bytes(header.pit_token.as_slice().try_into().unwrap());
                assert!(packet == segment(number), "{number}");
                asked.remove(&number).expect("one answer for one Interest");
            }
            for ProducerEvent::Wanted { interest } in std::mem::take(&mut self.out.events) {
                wanted += 1;
                let name = InterestView::decode(&interest).unwrap().name;
                let number = name.last().unwrap().as_segment().unwrap() as u32;
                self.put(segment(number));
            }
        }
        wanted
    }

    fn stats(&self) -> ProducerStats {
        self.producer.stats()
    }
}

#[test]
fn serves_an_object_larger_than_memory() {
    for engine in [Engine::Auto, Engine::Threads(4)] {
        let mut fixture = Fixture::new(16, |config| config.engine = engine);
        fixture.put_all();
        assert_eq!(fixture.request_all(&mut Rng::from_seed(1)), 0);
        let stats = fixture.stats();
        assert_eq!((stats.data, stats.disk_vain), (u64::from(SEGMENTS), 0));
        assert_eq!((stats.disk.passed_by, stats.disk.no_room, stats.disk.evictions), (0, 0, 0));
        // Records that are not written yet are found as well.
        let below_memory = stats.disk_data + stats.disk.hits_unwritten;
        assert!(stats.disk_data > 0 && below_memory > u64::from(SEGMENTS) / 2, "{stats:?}");
    }
}

#[test]
fn full_disk_keeps_the_newest_data() {
    let mut fixture = Fixture::new(8, |_| {});
    fixture.put_all();
    assert!(fixture.stats().disk.evictions > 0);
    fixture.send_interest(SEGMENTS - 300);
    fixture.run_until(|fixture| !fixture.out.packets.is_empty());
    fixture.out.packets.clear();
    // Publishing again evicts others.
    let wanted = fixture.request_all(&mut Rng::from_seed(2));
    assert!((100..SEGMENTS as usize).contains(&wanted), "{wanted}");
}

/// Faults are counted, and the application is asked again. No wrong data is served.
#[test]
fn disk_faults_never_serve_wrong_data() {
    let none = Faults { seed: 7, ..Faults::default() };
    let cases = [
        Faults { read_errors_ppm: 200_000, ..none.clone() },
        Faults { flips_ppm: 300_000, ..none.clone() },
        Faults { torn_writes_ppm: 300_000, ..none.clone() },
        Faults { write_errors_ppm: 300_000, ..none.clone() },
        Faults { no_space_ppm: 500_000, ..none.clone() },
        Faults { short_ppm: 200_000, interrupts_ppm: 200_000, ..none.clone() },
    ];
    for (case, faults) in cases.into_iter().enumerate() {
        let mut fixture = Fixture::new(16, |config| config.faults = Some(faults.clone()));
        fixture.put_all();
        let wanted = fixture.request_all(&mut Rng::from_seed(case as u64));
        let stats = fixture.stats();
        let disk = stats.disk;
        let counted = disk.read_errors + disk.damaged + disk.write_errors;
        match faults.short_ppm {
            0 => assert!(wanted > 0 && counted > 0, "{case}: {wanted} {stats:?}"),
            _ => assert_eq!((wanted, counted), (0, 0), "{case}: no errors: {stats:?}"),
        }
        assert!(stats.disk_data > 0 || faults.no_space_ppm > 0, "{case}: {stats:?}");
    }
}

#[test]
fn stalled_disk_does_not_block_requests() {
    let stall = Duration::from_secs(2);
    let faults = Faults { seed: 3, stalls_ppm: 30_000, stall, ..Faults::default() };
    let mut fixture = Fixture::with(16, WAIT_NS, |config| config.faults = Some(faults));
    fixture.put_all();
    fixture.request_all(&mut Rng::from_seed(3));
    assert!(fixture.stats().disk.stalls > 0, "{:?}", fixture.stats());
}

/// The engines available here.
fn engines() -> Vec<Engine> {
    let folder = tempfile::tempdir().unwrap();
    let bytes = Some(8 * MIB);
    let mut probe = DiskFileConfig::new(folder.path().join("probe"), bytes);
    probe.engine = Engine::IoUring;
    if weir_disk::open(&[probe], 1).unwrap().start(1, 1).is_ok() {
        return vec![Engine::IoUring, Engine::Threads(4)];
    }
    eprintln!("no io_uring here: it is NOT tested");
    vec![Engine::Threads(4)]
}

fn busy_fixture(change: impl FnOnce(&mut DiskFileConfig)) -> Fixture {
    let mut fixture = Fixture::new(16, change);
    let mut numbers = 0..SEGMENTS;
    while !fixture.disk.is_busy() {
        fixture.put(segment(numbers.next().expect("evicted packets are written")));
    }
    fixture
}

#[test]
fn finishes_writes_after_producer_drop() {
    for engine in engines() {
        let mut closing = ClosingDisks::default();
        let folders: Vec<TempDir> = (0..3)
            .map(|_| {
                let Fixture { disk, _folder, .. } = busy_fixture(|config| config.engine = engine);
                // Long before its deadline.
                closing.add(monotonic_now().plus_ns(60 * NS_PER_S), disk);
                _folder
            })
            .collect();
        let began = Time::now();
        while closing.poll(monotonic_now()).is_some() {
            assert!(began.elapsed() < TEST_TIMEOUT, "{engine:?}");
            let sources = closing.disks.iter().flat_map(|(disk, _)| disk.sources());
            let mut sources: Vec<PollFd<'_>> =
                sources.map(|source| PollFd::new(source, PollFlags::POLLIN)).collect();
            poll(&mut sources, PollTimeout::from(1_u8)).unwrap();
        }
        assert_eq!(closing.unfinished, 0, "{engine:?}");
        drop(folders);
    }
}

#[test]
fn finishes_writes_after_session_end() {
    for engine in engines() {
        let mut closing = ClosingDisks::default();
        let Fixture { disk, _folder, .. } = busy_fixture(|config| config.engine = engine);
        let now = monotonic_now().plus_ns(60 * NS_PER_S);
        closing.add(now, disk);
        closing.wait(now);
        assert_eq!((closing.disks.len(), closing.unfinished), (0, 0), "{engine:?}");
    }
}

#[test]
fn closing_does_not_wait_for_a_hung_disk() {
    let stall = Duration::from_secs(3600);
    let faults = Faults { stalls_ppm: 1_000_000, stall, ..Faults::default() };
    let mut closing = ClosingDisks::default();
    let Fixture { disk, _folder, .. } = busy_fixture(|config| config.faults = Some(faults));
    let began = monotonic_now();
    closing.add(began, disk);
    let until = began.plus_ns(CLOSE_TIMEOUT_NS);
    assert_eq!(closing.poll(began), Some(until));
    assert_eq!(closing.poll(until), None);
    assert_eq!(closing.unfinished, 1);
}

#[test]
fn unusable_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let errno = |folder: &Path, bytes| match OutputDisk::open(folder, bytes, 8000, WAIT_NS) {
        Err(SocketError::Disk { errno, reason }) => {
            assert!(reason.contains(folder.to_str().unwrap()), "{reason}");
            errno
        }
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(errno(&missing, 8 * MIB), Some(nix::libc::ENOENT));
    let file = folder.path().join("file");
    std::fs::write(&file, b"something else").unwrap();
    assert_eq!(errno(&file, 8 * MIB), Some(nix::libc::ENOTDIR));
    assert_eq!(errno(folder.path(), 1), None, "too small for a disk");
    // More than any file may have.
    let too_large = errno(folder.path(), 1 << 63);
    assert!(
        matches!(too_large, Some(nix::libc::EFBIG | nix::libc::ENOSPC | nix::libc::EINVAL)),
        "{too_large:?}"
    );
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(std::fs::read(&file).unwrap(), b"something else");
}

#[test]
fn two_producers_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let open = || OutputDisk::open(folder.path(), 8 * MIB, 8000, WAIT_NS).unwrap();
    let ((_one, first), (_other, second)) = (open(), open());
    assert_ne!(first.store_id, second.store_id);
}
