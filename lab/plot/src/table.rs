//! The data of a figure as CSV, and its description in words.

use std::fmt::Write as _;

use crate::{Bars, Boxes, Figure, Heat, Kind, Point, Series};

/// One CSV field, quoted if necessary.
pub fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn row(out: &mut String, fields: &[String]) {
    let fields: Vec<String> = fields.iter().map(|field| csv_field(field)).collect();
    // Writing to a String cannot fail. A single empty field would read as an empty line.
    let _ = writeln!(out, "{}", fields.join(","));
}

/// A number that parses back to the same value; `NaN`, `inf` and `-inf` are written as such.
fn plain(value: f64) -> String {
    value.to_string()
}

fn optional(value: Option<f64>) -> String {
    value.map_or(String::new(), plain)
}

/// See [`Figure::to_csv`].
pub(crate) fn csv(figure: &Figure) -> String {
    let mut out = String::new();
    if let Kind::Panels(panels) = &figure.kind {
        for (index, panel) in panels.figures.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let letter = char::from(b'a' + (index % 26) as u8);
            row(&mut out, &[format!("# ({letter}) {}", one_line(&panel.title))]);
            out.push_str(&csv(panel));
        }
        return out;
    }
    match &figure.kind {
        Kind::Series(all) => series(&mut out, figure, all),
        Kind::Bars(data) => bars(&mut out, figure, data),
        Kind::Boxes(data) => boxes(&mut out, figure, data),
        Kind::Heat(data) => heat(&mut out, figure, data),
        Kind::Panels(_) => {}
    }
    out
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn interval_headings(value: &str) -> [String; 3] {
    [value.to_owned(), format!("{value} low"), format!("{value} high")]
}

fn interval(point: &Point) -> [String; 3] {
    [plain(point.y), optional(point.low), optional(point.high)]
}

fn named(heading: String, otherwise: &str) -> String {
    if heading.is_empty() { otherwise.to_owned() } else { heading }
}

fn series(out: &mut String, figure: &Figure, all: &[Series]) {
    let x = named(figure.x.heading(), "x");
    let y = named(figure.y.heading(), "y");
    let mut fields = vec!["series".to_owned(), x];
    fields.extend(interval_headings(&y));
    row(out, &fields);
    for one in all {
        for point in &one.points {
            let mut fields = vec![one.name.clone(), plain(point.x)];
            fields.extend(interval(point));
            row(out, &fields);
        }
    }
}

fn bars(out: &mut String, figure: &Figure, data: &Bars) {
    let mut fields = vec![named(figure.x.heading(), "category"), "group".to_owned()];
    fields.extend(interval_headings(&named(figure.y.heading(), "value")));
    row(out, &fields);
    for group in &data.groups {
        for (category, point) in data.categories.iter().zip(&group.values) {
            let mut fields = vec![category.clone(), group.name.clone()];
            fields.extend(interval(point));
            row(out, &fields);
        }
    }
}

fn boxes(out: &mut String, figure: &Figure, data: &Boxes) {
    let x = named(figure.x.heading(), "category");
    row(out, &[x, "group".to_owned(), named(figure.y.heading(), "value")]);
    for group in &data.groups {
        for (category, samples) in data.categories.iter().zip(&group.samples) {
            for sample in samples {
                row(out, &[category.clone(), group.name.clone(), plain(*sample)]);
            }
        }
    }
}

fn heat(out: &mut String, figure: &Figure, data: &Heat) {
    let y = named(figure.y.heading(), "row");
    let x = named(figure.x.heading(), "column");
    row(out, &[y, x, named(data.bar.heading(), "value")]);
    for (name, values) in data.rows.iter().zip(&data.values) {
        for (column, value) in data.columns.iter().zip(values) {
            row(out, &[name.clone(), column.clone(), plain(*value)]);
        }
    }
}

/// See [`Figure::description`].
pub(crate) fn description(figure: &Figure) -> String {
    let axes = format!("{} over {}", figure.y.heading(), figure.x.heading());
    let list = |names: Vec<&str>| {
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.is_empty() { String::new() } else { format!(": {}", names.join("; ")) }
    };
    let what = match &figure.kind {
        Kind::Series(all) => {
            format!("Lines of {axes}{}", list(all.iter().map(|s| s.name.as_str()).collect()))
        }
        Kind::Bars(data) => {
            let groups = list(data.groups.iter().map(|g| g.name.as_str()).collect());
            format!("Bars of {axes}{groups}")
        }
        Kind::Boxes(data) => {
            let groups = list(data.groups.iter().map(|g| g.name.as_str()).collect());
            format!("Box plots of {axes}{groups}")
        }
        Kind::Heat(data) => format!(
            "Heat map of {}: {} by {}",
            data.bar.heading(),
            figure.y.heading(),
            figure.x.heading()
        ),
        Kind::Panels(panels) => {
            let all: Vec<String> = panels.figures.iter().map(description).collect();
            format!("{} panels. {}", all.len(), all.join(" "))
        }
    };
    let references: Vec<String> = figure
        .references
        .iter()
        .map(|r| format!("{} at {}", r.name, crate::readable(r.value, unit_of(figure, r.vertical))))
        .collect();
    let references = if references.is_empty() {
        String::new()
    } else {
        format!(" With lines: {}.", references.join("; "))
    };
    one_line(&format!("{}. {what}.{references}", figure.title.trim_end_matches('.')))
}

fn unit_of(figure: &Figure, vertical: bool) -> &str {
    if vertical { &figure.x.unit } else { &figure.y.unit }
}
