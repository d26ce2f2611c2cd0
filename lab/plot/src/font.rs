//! The width of text in the font that the crate includes.

use std::sync::OnceLock;

use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};

/// The regular face, a subset: Latin, Greek, superscripts, arrows and some mathematics.
pub(crate) const REGULAR: &[u8] = include_bytes!("../fonts/DejaVuSans.ttf");
/// The bold face, the same subset.
pub(crate) const BOLD: &[u8] = include_bytes!("../fonts/DejaVuSans-Bold.ttf");
/// Verdana has nearly the same widths, for systems without DejaVu.
pub(crate) const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// Widths of characters below this code are cached.
const TABLE: usize = 0x400;

struct Widths {
    by_code: Vec<f32>,
    other: f32,
}

fn measure(bytes: &[u8]) -> Widths {
    // An unreadable face only makes the layout imprecise.
    let mut widths = Widths { by_code: vec![0.6; TABLE], other: 0.64 };
    let Ok(font) = FontRef::new(bytes) else { return widths };
    let metrics = font.glyph_metrics(Size::new(1.0), LocationRef::default());
    let map = font.charmap();
    for (code, width) in widths.by_code.iter_mut().enumerate() {
        let character = char::from_u32(code as u32).unwrap_or(' ');
        if let Some(advance) = map.map(character).and_then(|glyph| metrics.advance_width(glyph)) {
            *width = advance;
        }
    }
    widths.other = widths.by_code.get(usize::from(b'n')).copied().unwrap_or(0.64);
    widths
}

/// Width of `text` at `size`, in the unit of `size`.
pub(crate) fn width(text: &str, size: f64, bold: bool) -> f64 {
    static FACES: OnceLock<[Widths; 2]> = OnceLock::new();
    let faces = FACES.get_or_init(|| [measure(REGULAR), measure(BOLD)]);
    let face = &faces[usize::from(bold)];
    let ems: f64 = text
        .chars()
        .map(|c| f64::from(face.by_code.get(c as usize).copied().unwrap_or(face.other)))
        .sum();
    ems * size
}

/// Breaks `text` at spaces into lines no wider than `limit`. A longer word gets its own line.
pub(crate) fn wrap(text: &str, size: f64, bold: bool, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line)
                if width(line, size, bold) + width(" ", size, bold) + width(word, size, bold)
                    <= limit =>
            {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Truncates `text` with an ellipsis so that it is no wider than `limit`.
pub(crate) fn cut(text: &str, size: f64, bold: bool, limit: f64) -> String {
    if width(text, size, bold) <= limit {
        return text.to_owned();
    }
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        if width(&kept, size, bold) + width("…", size, bold) > limit {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}
