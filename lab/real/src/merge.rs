//! Merges the events of all processes by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use weir_plan::event::{Event, EventKind, Observer};

use super::codec::EventReader;

const READ_BYTES: usize = 256 * 1024;

/// Reads the files (node and path), adds `others`, which are sorted by time, and passes all events
/// to `observer`. Equal times are ordered by node. Returns the number of events.
pub(super) fn merge(
    files: &[(u32, PathBuf)],
    others: &[Event],
    observer: &mut dyn Observer,
) -> io::Result<u64> {
    let mut readers = Vec::new();
    let mut heads: Vec<Option<(u64, EventKind)>> = Vec::new();
    let mut heap = BinaryHeap::new();
    for (index, (node, path)) in files.iter().enumerate() {
        let file = File::open(path)?;
        let mut reader = EventReader::new(BufReader::with_capacity(READ_BYTES, file));
        let head = reader.read()?;
        if let Some((at_ns, _)) = &head {
            heap.push(Reverse((*at_ns, *node, index)));
        }
        readers.push(reader);
        heads.push(head);
    }
    let mut others = others.iter().peekable();
    let mut count = 0;
    // A k-way merge: the heap has the time of the next event of each file.
    while let Some(Reverse((at_ns, node, index))) = heap.pop() {
        while let Some(other) = others.next_if(|other| (other.at_ns, other.node) < (at_ns, node)) {
            observer.observe(other);
            count += 1;
        }
        let next = readers[index].read()?;
        if let Some((next_ns, _)) = &next {
            heap.push(Reverse((*next_ns, node, index)));
        }
        if let Some((at_ns, kind)) = std::mem::replace(&mut heads[index], next) {
            observer.observe(&Event { at_ns, node, kind });
            count += 1;
        }
    }
    for other in others {
        observer.observe(other);
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::EventWriter;

    #[test]
    fn merges_events_by_time() {
        let dir = tempfile::tempdir().unwrap();
        let times = [vec![1, 4, 4, 9], vec![], vec![0, 4, 10]];
        let mut files = Vec::new();
        for (node, times) in times.iter().enumerate() {
            let path = dir.path().join(node.to_string());
            let mut writer = EventWriter::new(File::create(&path).unwrap());
            for (object, &at_ns) in times.iter().enumerate() {
                writer.write(at_ns, &EventKind::ObjectStarted { object: object as u64 }).unwrap();
            }
            writer.flush().unwrap();
            files.push((node as u32, path));
        }
        let sample = |at_ns| Event {
            at_ns,
            node: 3,
            kind: EventKind::FaultChanged { fault: 0, begins: true },
        };
        let mut seen: Vec<Event> = Vec::new();
        let count = merge(&files, &[sample(4), sample(11)], &mut seen).unwrap();
        assert_eq!(count, 9);
        let order: Vec<(u64, u32)> = seen.iter().map(|event| (event.at_ns, event.node)).collect();
        let expected = [(0, 2), (1, 0), (4, 0), (4, 0), (4, 2), (4, 3), (9, 0), (10, 2), (11, 3)];
        assert_eq!(order, expected);
        assert!(merge(&[(0, dir.path().join("none"))], &[], &mut seen).is_err());
    }
}
