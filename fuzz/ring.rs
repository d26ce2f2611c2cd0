//! A shared-memory ring whose peer writes arbitrary values at arbitrary times, also during calls.
//! Shared by a property test of `weir-face` and a fuzz target.

/// Each access to a mark is a moment at which the hostile peer may write.
mod atomic {
    use std::sync::atomic;
    pub(crate) use std::sync::atomic::{Ordering, fence};

    #[derive(Debug, Default)]
    pub(crate) struct AtomicU32(pub(super) atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn load(&self, ordering: Ordering) -> u32 {
            super::interleave();
            self.0.load(ordering)
        }

        pub(crate) fn store(&self, value: u32, ordering: Ordering) {
            super::interleave();
            self.0.store(value, ordering);
        }

        pub(crate) fn swap(&self, value: u32, ordering: Ordering) -> u32 {
            super::interleave();
            self.0.swap(value, ordering)
        }
    }
}
#[path = "../io/face/src/shared/ring.rs"]
mod ring;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use ring::{Broken, Marks, Memory, Reader, Writer};
use weir_wire::peek_frame;

const LEN: usize = 64;
/// Flag of a step that the hostile peer carries out during a later call.
const DURING_CALL: u8 = 0x80;

type Step = [u8; 6];

thread_local! {
    /// Steps of the hostile peer during calls, one for each access, and its memory.
    static DURING_CALLS: RefCell<(Option<Rc<Shared>>, VecDeque<Step>)> = RefCell::default();
}

struct Shared {
    marks: Marks,
    octets: RefCell<[u8; LEN]>,
}

/// Called at each access to the memory: the hostile peer may change it.
fn interleave() {
    DURING_CALLS.with_borrow_mut(|(shared, steps)| {
        if let Some(shared) = shared
            && let Some(step) = steps.pop_front()
        {
            shared.corrupt(&step);
        }
    });
}

impl Memory for Rc<Shared> {
    const LEN: u32 = LEN as u32;

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn put(&self, at: u32, octets: &[u8]) {
        interleave();
        self.octets.borrow_mut()[at as usize..][..octets.len()].copy_from_slice(octets);
    }

    fn take(&self, at: u32, octets: &mut [u8]) {
        interleave();
        let len = octets.len();
        octets.copy_from_slice(&self.octets.borrow()[at as usize..][..len]);
    }
}

impl Shared {
    /// Carries out a step of the hostile peer.
    fn corrupt(&self, step: &Step) {
        let [what, at, number @ ..] = *step;
        let number = u32::from_le_bytes(number);
        let marks = &self.marks;
        match what % 8 {
            0 => set(&marks.written, number),
            1 => set(&marks.read, number),
            // A little beyond or below a valid position.
            2 => set(&marks.written, get(&marks.read).wrapping_add(u32::from(at))),
            3 => set(&marks.read, get(&marks.written).wrapping_sub(u32::from(at))),
            4 => {
                set(&marks.reader, number);
                set(&marks.writer, u32::from(at));
            }
            _ => self.octets.borrow_mut()[usize::from(at) % LEN] = number as u8,
        }
    }
}

/// Runs `script`, for the hostile peer and for the side under test. Nothing may panic, nothing
/// outside of the ring may be accessed, and impossible marks must be reported.
pub(crate) fn check(script: &[u8]) {
    let shared = Rc::new(Shared { marks: Marks::default(), octets: RefCell::new([0; LEN]) });
    DURING_CALLS.set((Some(Rc::clone(&shared)), VecDeque::new()));
    let mut reader = Reader::new(Rc::clone(&shared));
    let mut writer = Writer::new(Rc::clone(&shared));
    for step in script.chunks_exact(size_of::<Step>()) {
        let step: &Step = step.try_into().expect("six octets");
        let is_whole = match step[0] % 8 {
            6 => read(&mut reader).is_ok(),
            7 => write(&mut writer, usize::from(step[1]) % (2 * LEN)).is_ok(),
            _ if step[0] & DURING_CALL != 0 => {
                DURING_CALLS.with_borrow_mut(|(_, steps)| steps.push_back(*step));
                true
            }
            _ => {
                shared.corrupt(step);
                true
            }
        };
        if !is_whole {
            // The face closes.
            break;
        }
    }
    DURING_CALLS.take();
}

fn set(line: &ring::CacheLine, number: u32) {
    line.0.0.store(number, Ordering::Relaxed);
}

fn get(line: &ring::CacheLine) -> u32 {
    line.0.0.load(Ordering::Relaxed)
}

/// Reads like a socket.
fn read(reader: &mut Reader<Rc<Shared>>) -> Result<(), Broken> {
    let available = reader.available()? as usize;
    assert!(available <= LEN);
    if available == 0 {
        return reader.sleep(|| ()).map(drop);
    }
    let mut copied = [0; LEN];
    let copied = &mut copied[..available];
    reader.copy(copied);
    let mut at = 0;
    while let Ok(Some(len)) = peek_frame(&copied[at..])
        && at + len <= available
    {
        at += len;
    }
    let _ = reader.release(at as u32);
    Ok(())
}

/// Writes like a socket.
fn write(writer: &mut Writer<Rc<Shared>>, len: usize) -> Result<(), Broken> {
    let octets = [7; 2 * LEN];
    if !writer.push([&octets[..len / 3], &octets[len / 3..len]])? {
        if writer.wait_for_space(len)? {
            assert!(writer.push([&octets[..len], &[]])?, "there was room");
        } else {
            // The result depends on the hostile peer. The call must not panic.
            let _ = writer.is_woken();
        }
    }
    let _ = writer.publish();
    assert_eq!(writer.unpublished(), 0);
    assert!(writer.waiting()? as usize <= LEN);
    Ok(())
}
