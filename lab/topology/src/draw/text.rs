//! Text in pictures: its width, escapes for XML, and short forms of quantities.

/// Widths of the printable ASCII characters in DejaVu Sans, in thousandths of the font size.
const WIDTHS: [u16; 95] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
];

/// Width of `text` at `size`, in the unit of `size`. Other characters count as wide ones.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let of = |c: char| match u32::from(c) {
        code @ 32..=126 => f64::from(WIDTHS[code as usize - 32]),
        0x80..=0x2fff => 650.0,
        _ => 1_000.0,
    };
    text.chars().map(of).sum::<f64>() / 1_000.0 * size
}

/// Escapes text for elements and quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push(' '),
            _ => out.push(c),
        }
    }
    out
}

/// Three digits without trailing zeros, and the unit: 1,964,000 with `[(1_000_000, "ms"), ..]` is
/// `"1.96 ms"`.
fn short(value: u64, units: &[(u64, &str)]) -> String {
    let last = units.len() - 1;
    // In three digits, 0.9995 of a unit already reads as 1 of it.
    let rounds_to_one = |scale: u64| value as f64 >= scale as f64 * 0.9995;
    let index = units.iter().position(|&(scale, _)| rounds_to_one(scale)).unwrap_or(last);
    let (scale, unit) = units[index];
    let number = value as f64 / scale as f64;
    let digits = match number {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    let mut text = format!("{number:.digits$}");
    if digits > 0 {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{text} {unit}")
}

/// A duration in three digits.
pub(super) fn short_duration(ns: u64) -> String {
    short(ns, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
}

/// A rate in three digits.
pub(super) fn short_rate(bps: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (1_000_000_000_000, "Tbit/s"),
        (1_000_000_000, "Gbit/s"),
        (1_000_000, "Mbit/s"),
        (1_000, "kbit/s"),
        (1, "bit/s"),
    ];
    short(bps, &UNITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits() {
        assert_eq!(short_duration(1_964_000), "1.96 ms");
        assert_eq!(short_duration(10_000_000), "10 ms");
        assert_eq!(short_duration(100_000_000), "100 ms");
        assert_eq!(short_duration(999_990), "1 ms");
        assert_eq!(short_duration(0), "0 ns");
        assert_eq!(short_rate(2_500_000_000), "2.5 Gbit/s");
        assert_eq!(short_rate(622_000_000), "622 Mbit/s");
    }

    #[test]
    fn text_is_as_wide_as_its_characters() {
        assert!((width("ii", 10.0) - 5.56).abs() < 1e-9);
        assert!((width("W", 10.0) - 9.89).abs() < 1e-9);
    }
}
