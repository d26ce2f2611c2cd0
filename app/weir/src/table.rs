//! Text output: tables, numbers, and safe printing.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::libc;
use terminal_size::terminal_size_of;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
use weir_face::standard_output_was_closed;

pub(crate) use weir_base::units::approximate_bytes as octets;

/// Standard output cannot be written.
#[derive(Debug)]
pub(crate) struct OutError(io::Error);

impl OutError {
    /// Whether the reader has closed the pipe, as in `weir status | head -1`.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }

    pub(crate) fn cause(&self) -> &io::Error {
        &self.0
    }
}

impl std::fmt::Display for OutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl std::error::Error for OutError {}

/// Standard output as a file.
///
/// # Errors
/// If standard output is closed. `std::io::stdout` would ignore a closed or unwritable descriptor
/// and report success.
pub(crate) fn standard_output() -> io::Result<File> {
    if standard_output_was_closed() {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Whether `NO_COLOR` is not set (<https://no-color.org>).
pub(crate) fn is_color_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether standard error shows colours: it is a terminal, and they are wanted.
pub(crate) fn has_color() -> bool {
    is_color_wanted() && io::IsTerminal::is_terminal(&io::stderr())
}

/// Writes to standard output.
pub(crate) fn write_out(text: std::fmt::Arguments<'_>) -> Result<(), OutError> {
    let written = standard_output()
        .and_then(|mut out| io::Write::write_all(&mut out, text.to_string().as_bytes()));
    written.map_err(OutError)
}

/// `print!` that returns an error instead of a panic.
macro_rules! out {
    ($($text:tt)*) => { $crate::table::write_out(format_args!($($text)*)) };
}

/// `println!` that returns an error instead of a panic.
macro_rules! outln {
    () => { $crate::table::write_out(format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::table::write_out(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Writes a line to standard error, with [`printable_lines`] applied. Unlike `eprintln!`, it does
/// not panic when the terminal is closed.
pub(crate) fn write_error(text: &str) {
    let line = format!("{}\n", printable_lines(text));
    let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
}

/// `eprintln!` for untrusted text, without panics.
macro_rules! errln {
    ($($text:tt)*) => { $crate::table::write_error(&format!($($text)*)) };
}

pub(crate) use {errln, out, outln};

/// Makes untrusted text, such as a path, safe for a terminal and for one line: control characters
/// and characters that change the writing direction are escaped.
pub(crate) fn printable(text: impl std::fmt::Display) -> String {
    let mut shown = String::new();
    for letter in text.to_string().chars() {
        let turns = matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        if letter.is_control() || turns {
            shown.extend(letter.escape_default())
        } else {
            shown.push(letter)
        }
    }
    shown
}

/// Applies [`printable`] to each line of a message.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// The space before each column.
const GAP: &str = "  ";

/// A text table with headings. The width of a column is that of its widest cell on a terminal,
/// where Chinese, Japanese and Korean characters have twice the width of Latin ones.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, with one cell per column.
    pub(crate) fn row(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "a row needs one cell per column");
        self.rows.push(row.into_iter().map(printable).collect());
    }

    /// Renders the table for standard output, or the text `empty` if it has no rows.
    pub(crate) fn render(&self, empty: &str) -> String {
        if self.rows.is_empty() {
            return format!("{GAP}{empty}\n");
        }
        self.render_within(output_columns())
    }

    /// Renders the table for a terminal with this number of columns. If it does not fit, long cells
    /// are shortened in the middle. If it still does not fit, each value has a line of its own, or
    /// several, and nothing is cut off.
    fn render_within(&self, columns: usize) -> String {
        let width_of = |at: usize| {
            let texts = self.rows.iter().map(|row| row[at].width());
            texts.chain([self.columns[at].0.width()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(width_of).collect();
        if !self.shrink(&mut widths, columns) {
            return self.render_as_list(columns);
        }
        let headings = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let cell = shortened(cell, width);
                let padding = " ".repeat(width - cell.width());
                line += GAP;
                line += &match align {
                    Align::Left => format!("{cell}{padding}"),
                    Align::Right => format!("{padding}{cell}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Reduces the widths of the widest left-aligned columns until the table fits. Returns whether
    /// it does. Numbers, which are right-aligned, and headings are never shortened.
    fn shrink(&self, widths: &mut [usize], columns: usize) -> bool {
        let total: usize = widths.iter().map(|width| width + GAP.len()).sum();
        for _ in columns..total {
            let long = (0..widths.len()).filter(|&at| {
                let (heading, align) = self.columns[at];
                align == Align::Left && widths[at] > SHORTENED_MIN.max(heading.width())
            });
            let Some(widest) = long.max_by_key(|&at| widths[at]) else { return false };
            widths[widest] -= 1;
        }
        true
    }

    /// Renders each value after its heading, and an empty line between rows.
    fn render_as_list(&self, columns: usize) -> String {
        let rows = self.rows.iter().map(|row| {
            let values = self.columns.iter().zip(row);
            let values = values.map(|((heading, _), cell)| (*heading, cell.clone()));
            fields_within(&values.collect::<Vec<_>>(), columns)
        });
        rows.collect::<Vec<_>>().join("\n")
    }
}

/// Columns that a shortened cell keeps at least.
const SHORTENED_MIN: usize = 16;
/// Columns that a value after its label has at least.
const VALUE_MIN: usize = 8;

/// The number of columns for text on standard output. `COLUMNS` takes precedence over the
/// terminal, as for ls(1) and ps(1); watch(1) sets it. Without both, a program may read the text,
/// and there is no limit.
pub(crate) fn output_columns() -> usize {
    let stated = std::env::var("COLUMNS").ok();
    let terminal = terminal_size_of(io::stdout()).map(|(width, _)| width.0.into());
    columns_of(stated.as_deref(), terminal)
}

fn columns_of(stated: Option<&str>, terminal: Option<usize>) -> usize {
    let stated = stated.and_then(|text| text.trim().parse().ok()).filter(|&columns| columns > 0);
    stated.or(terminal.filter(|&columns| columns > 0)).unwrap_or(usize::MAX)
}

/// Lines of a label and a value for standard output. A value that does not fit continues below
/// itself.
pub(crate) fn fields(rows: &[(&str, String)]) -> String {
    fields_within(rows, output_columns())
}

fn fields_within(rows: &[(&str, String)], columns: usize) -> String {
    let label_width = rows.iter().map(|(label, _)| label.width()).max().unwrap_or(0);
    let indent = label_width + 2 * GAP.len();
    let value_columns = columns.saturating_sub(indent).max(VALUE_MIN);
    let mut text = String::new();
    for (label, value) in rows {
        let padding = " ".repeat(label_width - label.width());
        let mut start = format!("{GAP}{label}{padding}{GAP}");
        for line in folded(&printable(value), value_columns) {
            text += format!("{start}{line}").trim_end();
            text.push('\n');
            start = " ".repeat(indent);
        }
    }
    text
}

/// A line for standard output after `indent`. What does not fit continues below.
pub(crate) fn paragraph(indent: &str, text: &str) -> String {
    paragraph_within(indent, text, output_columns())
}

fn paragraph_within(indent: &str, text: &str, columns: usize) -> String {
    let text = printable(text);
    let text_columns = columns.saturating_sub(indent.width()).max(VALUE_MIN);
    folded(&text, text_columns).iter().map(|line| format!("{indent}{line}\n")).collect()
}

/// The start of a text that fits into `columns`.
pub(crate) fn cut(text: &str, columns: usize) -> &str {
    let mut width = 0;
    for (at, letter) in text.char_indices() {
        width += letter.width().unwrap_or(0);
        if width > columns {
            return &text[..at];
        }
    }
    text
}

/// Breaks a text into lines, at spaces where there are any.
fn folded(text: &str, columns: usize) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while rest.width() > columns {
        // A line has at least one character.
        let first_bytes = rest.chars().next().map_or(0, char::len_utf8);
        let fitting = cut(rest, columns).len().max(first_bytes);
        if fitting == rest.len() {
            break;
        }
        let is_at_space = rest[fitting..].starts_with(' ');
        let space = rest[..fitting].rfind(' ').filter(|&at| at > 0 && !is_at_space);
        let (line, later) = rest.split_at(space.unwrap_or(fitting));
        lines.push(line.trim_end());
        rest = later.trim_start();
    }
    lines.push(rest);
    lines
}

/// Cuts out the middle of a text that is wider than `columns`. Both ends of a name tell it apart
/// from others.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let Some(kept) = columns.checked_sub(1) else { return String::new() };
    let start = cut(text, kept / 2);
    let mut end = text.len();
    let mut width = start.width();
    for (at, letter) in text.char_indices().rev() {
        width += letter.width().unwrap_or(0);
        if width > kept {
            break;
        }
        end = at;
    }
    format!("{start}…{}", &text[end..])
}

/// Formats a duration with its two largest units.
pub(crate) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a count with its noun in singular or plural.
pub(crate) fn count(number: u64, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns_of_a_table() {
        let mut table = Table::new(&[("NAME", Align::Left), ("COST", Align::Right)]);
        assert_eq!(table.render("none"), "  none\n");
        table.row(vec!["/a".into(), "1".into()]);
        table.row(vec!["/long/name".into(), "12345".into()]);
        assert_eq!(
            table.render("none"),
            "  NAME         COST\n  /a              1\n  /long/name  12345\n"
        );
    }

    #[test]
    fn aligns_wide_characters_by_columns() {
        let mut table = Table::new(&[("NAME", Align::Left), ("COST", Align::Right)]);
        table.row(vec!["/日本".into(), "1".into()]);
        table.row(vec!["/e\u{301}".into(), "2".into()]);
        assert_eq!(table.render_within(80), "  NAME   COST\n  /日本     1\n  /e\u{301}        2\n");
    }

    #[test]
    fn narrow_terminal_gets_a_line_per_value() {
        let mut table = Table::new(&[("NAME", Align::Left), ("COST", Align::Right)]);
        table.row(vec!["/a/long/name/日本".into(), "1".into()]);
        table.row(vec!["/b".into(), "2".into()]);
        let list = "  NAME  /a/long/name\n        /日本\n  COST  1\n\n  NAME  /b\n  COST  2\n";
        assert_eq!(table.render_within(20), list);
        let narrow = "  NAME  /a/long/\n        name/日\n        本\n  COST  1\n";
        assert!(table.render_within(0).starts_with(narrow), "{}", table.render_within(0));
        assert!(table.render_within(usize::MAX).starts_with("  NAME   "));
    }

    #[test]
    fn long_names_are_shortened_in_the_middle() {
        let mut table = Table::new(&[("NAME", Align::Left), ("COST", Align::Right)]);
        table.row(vec!["/demo/a/long/way/to/日本/file-1.bin".into(), "12345".into()]);
        let expected = "  NAME                                COST\n  \
                        /demo/a/long/way…/日本/file-1.bin  12345\n";
        assert_eq!(table.render_within(42), expected);
        for columns in 0..80 {
            let text = table.render_within(columns);
            let widest = text.lines().map(|line| line.width()).max();
            assert!(widest <= Some(columns.max(16)), "{columns}: {text}");
        }
        assert_eq!(shortened("/a/b", 4), "/a/b");
        assert_eq!(shortened("/a/b/c", 5), "/a…/c");
        assert_eq!(shortened("日本日本", 5), "日…本");
        assert_eq!(shortened("/data/run7/v=17", 9), "/dat…v=17");
        for columns in 0..9 {
            for text in ["/日本/日本/x", "日本日本日", "/data/run7/v=17"] {
                assert!(shortened(text, columns).width() <= columns, "{text} {columns}");
                assert!(cut(text, columns).width() <= columns, "{text} {columns}");
            }
        }
    }

    #[test]
    fn values_continue_below_themselves() {
        let rows = [("version", "1".to_owned()), ("run", "one two three four five".to_owned())];
        let text = "  version  1\n  run      one two\n           three four\n           five\n";
        assert_eq!(fields_within(&rows, 22), text);
        assert_eq!(paragraph_within("  ", "one two three", 9), "  one two\n  three\n");
        let whole = "  version  1\n  run      one two three four five\n";
        assert_eq!(fields_within(&rows, usize::MAX), whole);
    }

    #[test]
    fn environment_overrides_the_terminal() {
        assert_eq!(columns_of(Some("40"), Some(120)), 40);
        assert_eq!(columns_of(Some("40"), None), 40);
        for invalid in [None, Some(""), Some("0"), Some("-1"), Some("wide")] {
            assert_eq!(columns_of(invalid, Some(120)), 120, "{invalid:?}");
        }
        // A terminal that does not know its size.
        assert_eq!(columns_of(None, Some(0)), usize::MAX);
        assert_eq!(columns_of(None, None), usize::MAX);
    }

    #[test]
    fn escapes_control_characters() {
        let text = "a\x1b[2J\x07\r\n\u{9b}31m\u{202e}\x7f";
        let shown = r"a\u{1b}[2J\u{7}\r\n\u{9b}31m\u{202e}\u{7f}";
        assert_eq!(printable(text), shown);
        assert_eq!(printable(shown), shown, "escaping twice changes nothing");
        assert_eq!(printable(r"C:\dir é 日本 'x'"), r"C:\dir é 日本 'x'");
        assert_eq!(printable_lines("a\x1b\nb\t"), "a\\u{1b}\nb\\t");
        let mut table = Table::new(&[("TO", Align::Left)]);
        table.row(vec!["\x1b[0m".into()]);
        assert_eq!(table.render("none"), "  TO\n  \\u{1b}[0m\n");
    }

    #[test]
    fn formats_times_and_counts() {
        assert_eq!(span(999), "999 ms");
        assert_eq!(span(61_000), "1 min 1 s");
        assert_eq!(span(90_000_000), "1 d 1 h");
        assert_eq!(count(1, "Interest", "Interests"), "1 Interest");
    }
}
