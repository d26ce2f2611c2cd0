//! What measurements have in common: medians, and packets with names of eight components, encoded
//! by hand so that setting up a million of them is quick.

/// Components of every name made here.
pub const NAME_COMPONENTS: usize = 8;
/// Names that share their first seven components.
pub const NAMES_PER_PARENT: u64 = 128;

/// Appends a TLV with a type below 253.
pub fn tlv(typ: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(typ);
    match value.len() {
        len @ 0..=252 => out.push(len as u8),
        len => {
            out.push(253);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

/// The TLV-VALUE of name number `index`:
/// `/weir/site07/run0012/set034/objects/00000042/54=1/50=<n>`.
#[must_use]
pub fn name_value(index: u64) -> Vec<u8> {
    let parent = index / NAMES_PER_PARENT;
    let mut value = Vec::with_capacity(80);
    tlv(8, b"weir", &mut value);
    tlv(8, format!("site{:02}", parent % 16).as_bytes(), &mut value);
    tlv(8, format!("run{:04}", parent / 16 % 64).as_bytes(), &mut value);
    tlv(8, format!("set{:03}", parent / 1024 % 128).as_bytes(), &mut value);
    tlv(8, b"objects", &mut value);
    tlv(8, format!("{parent:08}").as_bytes(), &mut value);
    tlv(54, &[1], &mut value);
    tlv(50, &[(index % NAMES_PER_PARENT) as u8], &mut value);
    value
}

/// An Interest for name number `index`.
#[must_use]
pub fn interest(index: u64, nonce: u32) -> Vec<u8> {
    let mut value = Vec::with_capacity(100);
    tlv(7, &name_value(index), &mut value);
    tlv(10, &nonce.to_be_bytes(), &mut value);
    let mut wire = Vec::with_capacity(104);
    tlv(5, &value, &mut wire);
    wire
}

/// A Data of name number `index` with `payload_len` octets of content and a digest signature that
/// no router checks.
#[must_use]
pub fn data(index: u64, payload_len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(payload_len + 160);
    tlv(7, &name_value(index), &mut value);
    tlv(20, &[25, 2, 0x27, 0x10], &mut value);
    tlv(21, &vec![b'w'; payload_len], &mut value);
    tlv(22, &[27, 1, 0], &mut value);
    tlv(23, &[0; 32], &mut value);
    let mut wire = Vec::with_capacity(value.len() + 4);
    tlv(6, &value, &mut wire);
    wire
}

/// The middle one of some figures, of an even number the upper one.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
