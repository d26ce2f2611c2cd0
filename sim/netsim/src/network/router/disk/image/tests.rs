use super::super::checksum;
use super::*;
use weir_base::Rng;
use weir_wire::Data;

const BLOCK: u32 = 512;

fn format() -> RecordFormat {
    RecordFormat { store_id: 77, block_bytes: BLOCK, checksum }
}

fn data(number: u32, content_len: usize) -> Packet {
    let name = format!("/x/{number}").parse().unwrap();
    Packet::from(Data::new(name).content(vec![number as u8; content_len]).encode_with_digest())
}

fn part(packet: &Packet) -> WriteChunk {
    WriteChunk::Data { packet: packet.clone(), fresh_until_unix_ms: 5 }
}

fn laid_out(offset: u64, sequence: u32, parts: &[WriteChunk]) -> Vec<u8> {
    let len: u64 = parts.iter().map(|part| part.size(BLOCK)).sum();
    let mut octets = vec![0; len as usize];
    let place = RecordLocation { store_id: 77, offset, sequence };
    record::encode_chunks(parts, &place, BLOCK, checksum, &mut octets);
    octets
}

/// Compares any sequence of whole and torn writes with a plain byte array.
#[test]
fn image_equals_a_byte_array() {
    let mut rng = Rng::from_seed(1);
    let mut producers = ProducerSet::default();
    let blocks = 64;
    let mut image = DiskImage::new(format(), u64::from(blocks * BLOCK));
    let mut array = vec![0u8; (blocks * BLOCK) as usize];
    for sequence in 0..2_000 {
        let parts: Vec<WriteChunk> = (0..1 + rng.below(3))
            .map(|_| match rng.below(4) {
                0 => WriteChunk::Raw(vec![sequence as u8; 1 + rng.below(1_500) as usize]),
                _ => part(&data(sequence, rng.below(1_400) as usize)),
            })
            .collect();
        let len = parts.iter().map(|part| part.size(BLOCK)).sum::<u64>() as u32 / BLOCK;
        let at = rng.below(blocks - len + 1);
        let written = rng.below(3) == 0;
        let torn = written.then(|| {
            let start = rng.below(len + 1);
            start..start + rng.below(len - start + 1)
        });
        let octets = laid_out(u64::from(at * BLOCK), sequence, &parts);
        let range = torn.clone().unwrap_or(0..len);
        let (from, to) = ((range.start * BLOCK) as usize, (range.end * BLOCK) as usize);
        let base = (at * BLOCK) as usize;
        array[base + from..base + to].copy_from_slice(&octets[from..to]);
        let write = ImageWrite { offset: u64::from(at * BLOCK), sequence, parts };
        match torn {
            Some(blocks) => image.write_some(write, blocks, &mut producers),
            None => image.write_all(write, &mut producers),
        }
        let all = image.read_octets(0, blocks * BLOCK, &mut producers);
        assert!(all == array, "after write {sequence}");
        let start = rng.below(blocks) * BLOCK;
        let some = image.read_octets(start.into(), 2 * BLOCK, &mut producers);
        let end = ((start + 2 * BLOCK) as usize).min(array.len());
        assert!(some == array[start as usize..end], "a range after write {sequence}");
    }
}

#[test]
fn records_read_back_or_fail_verification() {
    let mut producers = ProducerSet::default();
    let mut image = DiskImage::new(format(), 1 << 20);
    let packets: Vec<Packet> = (0..4).map(|number| data(number, 700)).collect();
    let parts = packets.iter().map(part).collect();
    image.write_all(ImageWrite { offset: 4096, sequence: 9, parts }, &mut producers);
    let mut read = |image: &DiskImage, at: u64, len, sequence| {
        image.read_record(at, len, sequence, &mut producers)
    };
    for (number, packet) in packets.iter().enumerate() {
        let at = 4096 + 1024 * number as u64;
        match read(&image, at, 1024, 9) {
            DiskOutcome::Record { packet: found, fresh_until_unix_ms: 5 } => {
                assert_eq!(*found, **packet);
            }
            other => panic!("{other:?}"),
        }
    }
    let is_foreign = |outcome| matches!(outcome, DiskOutcome::Damaged(RecordFault::Foreign));
    assert!(is_foreign(read(&image, 4096, 1024, 8)), "an older use of the region");
    assert!(is_foreign(read(&image, 4096 + 512, 1024, 9)), "amid a record");
    let short = read(&image, 4096, 512, 9);
    assert!(matches!(short, DiskOutcome::Damaged(RecordFault::Truncated)), "{short:?}");
    // Overwrites the second block of record 1, as a torn later write does.
    image.write_all(
        ImageWrite { offset: 4096 + 1536, sequence: 10, parts: vec![part(&data(8, 10))] },
        &mut ProducerSet::default(),
    );
    let mut producers = ProducerSet::default();
    let torn = image.read_record(4096 + 1024, 1024, 9, &mut producers);
    assert!(matches!(torn, DiskOutcome::Damaged(RecordFault::Checksum)), "{torn:?}");
    assert_eq!(image.acknowledged(10, 0, &mut producers).len(), 4, "three and the new one");
    assert_eq!(image.acknowledged(2, 0, &mut producers).len(), 3, "every second of five extents");
    assert_eq!(image.acknowledged(2, 1, &mut producers).len(), 1, "one of those is half a record");
}
