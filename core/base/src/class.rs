//! Size classes of the blocks of a [`Pool`](crate::Pool), about 1.25 apart.

/// Bytes before the payload of a block.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes that a general-purpose allocator commonly adds to a block.
const ALLOCATOR_BYTES: usize = 8;
/// The granule of common allocators, in bytes. Classes fill whole granules.
const GRANULE: usize = 16;

/// Bytes of payload of each class: a multiple of 16 less 8, so that header, payload and the
/// allocator's own bytes fill granules.
///
/// 8456 and 9224 hold a Data with 8000 bytes of content and the largest packet with its link
/// headers. 66,040 and above are for receive buffers.
const CAPACITIES: [u32; 37] = [
    104, 136, 168, 216, 264, 328, 408, 504, 632, 792, 984, 1240, 1544, 1928, 2408, 3016, 3768,
    4712, 5896, 7368, 8456, 9224, 11_528, 14_408, 18_008, 22_504, 28_120, 35_160, 43_944, 54_936,
    66_040, 82_552, 103_192, 131_080, 163_848, 204_808, 262_152,
];

pub(crate) const CLASSES: usize = CAPACITIES.len();

/// The largest payload whose class is found in a table.
const SMALL_MAX: usize = 9224;

const fn granules(size: usize) -> usize {
    (size + ALLOCATOR_BYTES).div_ceil(GRANULE)
}

static SMALL_CLASSES: [u8; granules(SMALL_MAX) + 1] = small_classes();

const fn small_classes() -> [u8; granules(SMALL_MAX) + 1] {
    let mut classes = [0; granules(SMALL_MAX) + 1];
    let mut at = 0;
    let mut class = 0;
    while at < classes.len() {
        if at > granules(CAPACITIES[class] as usize) {
            class += 1;
        }
        classes[at] = class as u8;
        at += 1;
    }
    classes
}

/// Bytes of memory of a block, by the granules of its size.
static SMALL_BYTES: [u16; granules(SMALL_MAX) + 1] = small_bytes();

const fn small_bytes() -> [u16; granules(SMALL_MAX) + 1] {
    let classes = small_classes();
    let mut bytes = [0; granules(SMALL_MAX) + 1];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = block_bytes(CAPACITIES[classes[at] as usize] as usize) as u16;
        at += 1;
    }
    bytes
}

/// The smallest class that holds `size` bytes.
#[inline]
pub(crate) fn class_of(size: usize) -> Option<usize> {
    if size <= SMALL_MAX {
        return Some(usize::from(SMALL_CLASSES[granules(size)]));
    }
    let class = CAPACITIES.partition_point(|&capacity| (capacity as usize) < size);
    (class < CLASSES).then_some(class)
}

/// Bytes of payload of a block of `class`.
#[inline]
pub(crate) fn capacity(class: usize) -> u32 {
    CAPACITIES[class]
}

/// Bytes of memory of a block with `capacity` bytes of payload.
#[inline]
pub(crate) const fn block_bytes(capacity: usize) -> usize {
    (capacity + HEADER_BYTES + ALLOCATOR_BYTES).next_multiple_of(GRANULE)
}

/// The same for a block of `class`.
#[inline]
pub(crate) fn class_bytes(class: usize) -> usize {
    capacity(class) as usize + HEADER_BYTES + ALLOCATOR_BYTES
}

/// The same for a block of a pool with space for `size` bytes.
#[inline]
pub(crate) fn footprint(size: usize) -> usize {
    if size <= SMALL_MAX {
        return usize::from(SMALL_BYTES[granules(size)]);
    }
    class_of(size).map_or_else(|| block_bytes(size), class_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_maps_to_smallest_class() {
        let sizes = (0..=9_300).chain((9_300..262_400).step_by(if cfg!(miri) { 9_001 } else { 7 }));
        for size in sizes {
            let expected = CAPACITIES.iter().position(|&capacity| capacity as usize >= size);
            assert_eq!(class_of(size), expected, "{size}");
            let capacity = expected.map_or(size, |class| CAPACITIES[class] as usize);
            assert_eq!(footprint(size), block_bytes(capacity), "{size}");
        }
    }

    #[test]
    fn classes_are_close_and_fill_granules() {
        for pair in CAPACITIES.windows(2) {
            assert!(
                pair[0] < pair[1] && f64::from(pair[1]) / f64::from(pair[0]) < 1.32,
                "{pair:?}"
            );
        }
        for capacity in CAPACITIES {
            let capacity = capacity as usize;
            assert_eq!(block_bytes(capacity), capacity + HEADER_BYTES + ALLOCATOR_BYTES);
        }
        assert_eq!(capacity(class_of(8_448).unwrap()), 8_456);
        assert_eq!(capacity(class_of(9_216).unwrap()), 9_224);
    }
}
