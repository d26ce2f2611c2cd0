//! Tables that fit the width of the screen.

use unicode_width::UnicodeWidthStr as _;

use crate::table::{printable, shortened};

/// The space before each column but the first.
const GAP: usize = 2;
/// Columns of numbers are at least this wide, so that they do not move when numbers grow.
const NUMBER_WIDTH_MIN: usize = 9;
/// The first column has at least this width, and half of the table, or the width of its longest
/// text, before others are dropped.
const NAME_WIDTH_MIN: usize = 22;

/// A row: the text of the first column, and a cell for each other column.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) cells: Vec<String>,
    /// Whether it needs attention.
    pub(super) is_bad: bool,
}

/// A table whose first column is what the rows are about. It is shortened to fit; the others are
/// dropped from the last to the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) headings: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
    /// Shown instead of rows.
    pub(super) empty: &'static str,
}

impl Table {
    /// The heading and up to `rows_max` rows, each of at most `width` columns of the terminal, and
    /// whether they need attention.
    pub(super) fn lines(&self, width: usize, rows_max: usize) -> Vec<(String, bool)> {
        let rows = &self.rows[..rows_max.min(self.rows.len())];
        let name_width = |row: &Row| printable(&row.name).width();
        let longest = rows.iter().map(name_width).chain([self.title.width()]).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..self.headings.len())
            .map(|at| {
                let cells = rows.iter().map(|row| row.cells[at].width());
                cells.chain([self.headings[at].width(), NUMBER_WIDTH_MIN]).max().unwrap_or(0)
            })
            .collect();
        let used = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>();
        let name_width_min = longest.min(NAME_WIDTH_MIN.max(width / 2));
        while used(&widths) + name_width_min > width && widths.pop().is_some() {}
        let name_width = longest.max(NAME_WIDTH_MIN).min(width.saturating_sub(used(&widths)));

        let line = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
            let mut line = pad_right(&shortened(&printable(name), name_width), name_width);
            for (cell, width) in cells.zip(&widths) {
                line += &" ".repeat((GAP + width).saturating_sub(cell.width()));
                line += cell;
            }
            line
        };
        let mut lines = vec![(line(&self.title, &mut self.headings.iter().copied()), false)];
        for row in rows {
            let mut cells = row.cells.iter().map(String::as_str);
            lines.push((line(&row.name, &mut cells), row.is_bad));
        }
        if self.rows.is_empty() && rows_max > 0 {
            lines.push((shortened(&format!("  {}", self.empty), width), false));
        }
        lines
    }
}

/// Fills up with spaces on the right.
pub(super) fn pad_right(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Fills up with spaces on the left.
pub(super) fn pad_left(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_last_columns_first() {
        let row = Row {
            name: "/a".to_owned(),
            cells: vec!["1".to_owned(), "2 MiB".to_owned()],
            is_bad: false,
        };
        let table = Table {
            title: "Objects (1)".to_owned(),
            headings: vec!["HITS/s", "SERVED/s"],
            rows: vec![row],
            empty: "",
        };
        let heading = |width| table.lines(width, 9)[0].0.trim_end().to_owned();
        assert_eq!(heading(80), format!("{:<22}     HITS/s   SERVED/s", "Objects (1)"));
        assert_eq!(heading(33), "Objects (1)     HITS/s   SERVED/s");
        assert_eq!(heading(22), "Objects (1)     HITS/s");
        assert_eq!(heading(12), "Objects (1)");
        assert_eq!(heading(5), "Ob…1)");
        assert_eq!(table.lines(0, 0), [(String::new(), false)]);
    }
}
