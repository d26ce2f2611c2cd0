//! A ring of memory shared with a stranger who writes whatever he likes wherever he can. A property
//! test of `weir-face` and a fuzz target share it.

mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
}
#[allow(dead_code, reason = "sockets use more of it")]
#[path = "../io/face/src/shared/ring.rs"]
mod ring;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use ring::{Broken, Marks, Memory, Reader, Writer};
use weir_wire::peek_frame;

const LEN: usize = 64;

struct Shared {
    marks: Marks,
    octets: RefCell<[u8; LEN]>,
}

impl Memory for Rc<Shared> {
    const LEN: u32 = LEN as u32;

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn put(&self, at: u32, octets: &[u8]) {
        self.octets.borrow_mut()[at as usize..][..octets.len()].copy_from_slice(octets);
    }

    fn take(&self, at: u32, octets: &mut [u8]) {
        let len = octets.len();
        octets.copy_from_slice(&self.octets.borrow()[at as usize..][..len]);
    }
}

/// Carries out what `script` says, for the stranger and for the side that must not mind: nothing
/// panics, nothing outside the ring is touched, and a mark that makes no sense is told as such.
pub(crate) fn check(script: &[u8]) {
    let shared = Rc::new(Shared { marks: Marks::default(), octets: RefCell::new([0; LEN]) });
    let mut reader = Reader::new(Rc::clone(&shared));
    let mut writer = Writer::new(Rc::clone(&shared));
    for step in script.chunks_exact(6) {
        let [what, at, number @ ..] = step else { return };
        let number = u32::from_le_bytes(number.try_into().expect("four octets"));
        let marks = &shared.marks;
        let is_whole = match what % 8 {
            0 => set(&marks.written, number),
            1 => set(&marks.read, number),
            // A little beyond or below what is right.
            2 => set(&marks.written, get(&marks.read).wrapping_add(u32::from(*at))),
            3 => set(&marks.read, get(&marks.written).wrapping_sub(u32::from(*at))),
            4 => set(&marks.reader, number) | set(&marks.writer, u32::from(*at)),
            5 => {
                shared.octets.borrow_mut()[usize::from(*at) % LEN] = number as u8;
                true
            }
            6 => read(&mut reader).is_ok(),
            _ => write(&mut writer, usize::from(*at) % (2 * LEN)).is_ok(),
        };
        if !is_whole {
            // The face closes.
            return;
        }
    }
}

fn set(line: &ring::Line, number: u32) -> bool {
    line.0.store(number, Ordering::Relaxed);
    true
}

fn get(line: &ring::Line) -> u32 {
    line.0.load(Ordering::Relaxed)
}

/// As a socket reads.
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

/// As a socket writes.
fn write(writer: &mut Writer<Rc<Shared>>, len: usize) -> Result<(), Broken> {
    let octets = [7; 2 * LEN];
    if !writer.push([&octets[..len / 3], &octets[len / 3..len]])? && writer.wait_for_room(len)? {
        assert!(writer.push([&octets[..len], &[]])?, "there was room");
    }
    let _ = writer.publish();
    assert!(writer.waiting()? as usize <= LEN);
    Ok(())
}
