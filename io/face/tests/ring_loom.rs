//! The ring of shared memory under loom: every order in which two threads may see each other's
//! writes. What is tested is the very file that the sockets use.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}
#[allow(dead_code, reason = "sockets use more of it")]
#[path = "../src/shared/ring.rs"]
mod ring;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use ring::{Marks, Memory, Reader, Writer};

const LEN: usize = 4;

/// Loom finds octets that are read while they may be written.
struct Shared {
    marks: Marks,
    octets: [UnsafeCell<u8>; LEN],
    bells: [Bell; 2],
}

const READER: usize = 0;
const WRITER: usize = 1;

/// As a connection that carries bells: they lie there until they are taken.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.has_rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn take(&self) {
        *self.has_rung.lock().unwrap() = false;
    }

    /// Waits for one, and leaves it there, as poll does.
    fn wait(&self) {
        let mut has_rung = self.has_rung.lock().unwrap();
        while !*has_rung {
            has_rung = self.changed.wait(has_rung).unwrap();
        }
    }
}

impl Shared {
    fn new() -> Arc<Self> {
        let octets = std::array::from_fn(|_| UnsafeCell::new(0));
        let bells = std::array::from_fn(|_| Bell::default());
        Arc::new(Self { marks: Marks::default(), octets, bells })
    }
}

impl Memory for Arc<Shared> {
    const LEN: u32 = LEN as u32;

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn put(&self, at: u32, octets: &[u8]) {
        for (cell, octet) in self.octets[at as usize..].iter().zip(octets) {
            // SAFETY: loom says so if another thread may be there.
            cell.with_mut(|cell| unsafe { *cell = *octet });
        }
    }

    fn take(&self, at: u32, octets: &mut [u8]) {
        for (cell, octet) in self.octets[at as usize..].iter().zip(octets) {
            // SAFETY: as in `put`.
            cell.with(|cell| *octet = unsafe { *cell });
        }
    }
}

/// Writes pairs of octets, and sleeps while there is no room.
fn write(shared: &Arc<Shared>, pairs: u8) {
    let mut writer = Writer::new(Arc::clone(shared));
    for number in 0..pairs {
        while !writer.push([&[number], &[!number]]).unwrap() {
            shared.bells[WRITER].take();
            if !writer.wait_for_room(2).unwrap() {
                shared.bells[WRITER].wait();
            }
        }
        if writer.publish() {
            shared.bells[READER].ring();
        }
    }
}

/// Reads them, and sleeps while there are none.
fn read(shared: &Arc<Shared>, pairs: u8) {
    let mut reader = Reader::new(Arc::clone(shared));
    let mut number = 0;
    while number < pairs {
        let available = reader.available().unwrap();
        if available == 0 {
            if reader.sleep(|| shared.bells[READER].take()).unwrap() {
                shared.bells[READER].wait();
            }
            continue;
        }
        let mut pair = [0; 2];
        reader.copy(&mut pair);
        assert_eq!(pair, [number, !number]);
        number += 1;
        if reader.release(2) {
            shared.bells[WRITER].ring();
        }
    }
}

/// Nothing is lost, torn or out of order, and neither side sleeps for ever: loom would say so.
fn check(pairs: u8) {
    let mut model = loom::model::Builder::new();
    // More changes of threads than these at places that do not wait take hours.
    model.preemption_bound = Some(2);
    model.check(move || {
        let shared = Shared::new();
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || write(&other, pairs));
        read(&shared, pairs);
        writer.join().unwrap();
    });
}

#[test]
fn who_sleeps_is_woken() {
    check(1);
    check(2);
}

#[test]
fn who_waits_for_room_is_woken() {
    // One more than the ring holds.
    check(3);
}
