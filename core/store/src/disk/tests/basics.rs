//! The main path, piece by piece.

use super::bed::*;
use std::vec;
use std::vec::Vec;

#[test]
fn what_memory_has_no_room_for_is_found_on_disk() {
    let mut bed = Bed::small();
    bed.settle();
    let names: Vec<_> = (0..20).map(|number| segment("/object/v=1", number)).collect();
    for (number, name) in names.iter().enumerate() {
        assert!(bed.put(name, &[number as u8; 900]));
    }
    assert!(matches!(bed.look(&names[3], false, false), Found::Memory(_)), "not written yet");
    assert_eq!(bed.stats().hits_unwritten, 1);
    assert_eq!((bed.stats().entries, bed.stats().writes_waiting), (20, 20));
    bed.settle();
    assert_eq!((bed.stats().writes, bed.stats().writes_waiting), (20, 0));
    assert!(matches!(bed.look(&names[3], false, false), Found::Disk(_)));
    for (number, name) in names.iter().enumerate() {
        assert_eq!(bed.content(name), Some(vec![number as u8; 900]));
    }
    assert!(bed.fetch(&segment("/object/v=1", 99)).is_none());
    assert!(bed.fetch(&name("/object")).is_none());
    assert_eq!(bed.stats().reads, 20);
    assert_eq!(bed.store.stats().hits, 21);
}
