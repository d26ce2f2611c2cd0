//! Writes the report as one HTML file.

use std::fmt::Write as _;

use super::markdown;
use super::{ClaimRow, ClaimTable, Graphic, Mark, Report, Section, Table};
use crate::draw::escape;
use crate::readable;

const STYLE: &str = include_str!("style.css");

/// See [`Report::to_html`].
pub(super) fn html(report: &Report) -> String {
    let mut out = String::new();
    let title = escape(&report.title);
    // The page must fetch and run nothing, for any text in it.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
    put(
        &mut out,
        format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>"
        ),
    );
    if !report.subtitle.is_empty() {
        put(&mut out, format_args!("<p class=\"subtitle\">{}</p>", escape(&report.subtitle)));
    }
    put(&mut out, format_args!("</header>\n<main>"));
    warnings(&mut out, &report.warnings);
    claims(&mut out, &report.claims);
    let mut numbers = Numbers::default();
    for part in &report.sections {
        section(&mut out, part, &mut numbers);
    }
    put(&mut out, format_args!("</main>\n<footer>"));
    facts(&mut out, report);
    put(&mut out, format_args!("</footer>\n</body>\n</html>"));
    out
}

#[derive(Default)]
struct Numbers {
    figures: usize,
    tables: usize,
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

fn warnings(out: &mut String, all: &[String]) {
    if all.is_empty() {
        return;
    }
    put(
        out,
        format_args!(
            "<div class=\"warnings\" role=\"note\"><p><strong>Read this first</strong></p><ul>"
        ),
    );
    for warning in all {
        put(out, format_args!("<li>{}</li>", markdown::inline(warning)));
    }
    put(out, format_args!("</ul></div>"));
}

/// Class and sign of a mark.
fn style(mark: Mark) -> (&'static str, &'static str) {
    match mark {
        Mark::Tick => ("yes", "✓ "),
        Mark::Up => ("yes", "▲ "),
        Mark::Cross => ("no", "✗ "),
        Mark::None => ("none", ""),
    }
}

fn claims(out: &mut String, table: &ClaimTable) {
    if table.rows.is_empty() {
        return;
    }
    put(out, format_args!("<h2>Paper and measurement</h2>\n<ul class=\"tally\">"));
    for outcome in &table.outcomes {
        let count = table.rows.iter().filter(|claim| claim.outcome == *outcome).count();
        if count > 0 {
            let (class, words) = (style(outcome.mark).0, escape(&outcome.words));
            put(out, format_args!("<li class=\"{class}\">{count} {words}</li>"));
        }
    }
    put(
        out,
        format_args!(
            "</ul>\n<div class=\"scroll\" role=\"region\" aria-label=\"Claims\" tabindex=\"0\">\
         <table class=\"claims\">\n<thead><tr><th scope=\"col\">Claim</th><th scope=\"col\">In the \
         paper</th><th scope=\"col\" class=\"number\">Paper</th><th scope=\"col\" class=\"number\">\
         Measured</th><th scope=\"col\">Verdict</th></tr></thead>\n<tbody>"
        ),
    );
    for claim in &table.rows {
        claim_row(out, claim);
    }
    put(
        out,
        format_args!(
            "</tbody></table></div><p class=\"small\">Under the paper's value: the band that \
             counts as reproduced. Under ours: the 95 % confidence interval over seeds, which \
             decides the verdict.</p>"
        ),
    );
}

fn claim_row(out: &mut String, claim: &ClaimRow) {
    let value = |value: Option<f64>| {
        value.map_or("–".to_owned(), |value| escape(&readable(value, &claim.unit)))
    };
    let span = |ends: [f64; 2]| {
        let [low, high] = ends.map(|end| escape(&readable(end, &claim.unit)));
        format!("<span class=\"interval\">[{low}, {high}]</span>")
    };
    let note = |text: &str| match text {
        "" => String::new(),
        text => format!("<span class=\"note\">{}</span>", markdown::inline(text)),
    };
    let (class, mark) = style(claim.outcome.mark);
    put(
        out,
        format_args!(
            "<tr id=\"claim-{id}\"><td class=\"metric\">{}<span class=\"id\">{id}</span>{}{}</td>\
         <td class=\"where\">{}</td><td class=\"number\">{}{}</td>\
         <td class=\"number\">{}{}</td>\
         <td><span class=\"verdict {class}\">{mark}{}</span></td></tr>",
            escape(&claim.metric),
            note(&claim.note),
            note(&claim.cause),
            escape(&claim.figure),
            value(claim.paper),
            if claim.is_order { "in order".to_owned() } else { span(claim.band) },
            value(claim.measured),
            claim.interval.map(span).unwrap_or_default(),
            escape(&claim.outcome.words),
            id = escape(&claim.id),
        ),
    );
}

fn section(out: &mut String, part: &Section, numbers: &mut Numbers) {
    put(out, format_args!("<section>"));
    if !part.heading.is_empty() {
        put(out, format_args!("<h2>{}</h2>", escape(&part.heading)));
    }
    out.push_str(&markdown::blocks(&part.text));
    for graphic in &part.graphics {
        numbers.figures += 1;
        figure(out, graphic, numbers.figures);
    }
    for one in &part.tables {
        numbers.tables += 1;
        table(out, one, numbers.tables);
    }
    put(out, format_args!("</section>"));
}

fn figure(out: &mut String, graphic: &Graphic, number: usize) {
    let drawing = super::embed::drawing(&graphic.svg, number);
    let themed = if drawing.contains("class=\"weir-figure\"") { " themed" } else { "" };
    let alt = if graphic.alt.is_empty() { &graphic.caption } else { &graphic.alt };
    put(
        out,
        format_args!(
            "<figure id=\"figure-{number}\">\n<div class=\"drawing{themed}\" role=\"img\" \
         aria-label=\"{}\">\n{drawing}</div>\n<figcaption><strong>Figure {number}.</strong> {}",
            escape(alt),
            markdown::inline(&graphic.caption)
        ),
    );
    if !graphic.files.is_empty() {
        let links: Vec<String> = graphic
            .files
            .iter()
            .map(|name| format!("<a href=\"{}\">{}</a>", relative(name), escape(name)))
            .collect();
        put(out, format_args!("<span class=\"made\">Files: {}</span>", links.join(", ")));
    }
    if !graphic.command.is_empty() {
        let command = escape(&graphic.command);
        put(out, format_args!("<span class=\"made\">Made by <code>{command}</code></span>"));
    }
    put(out, format_args!("</figcaption>\n</figure>"));
}

/// A file name as a relative address. It cannot leave the folder or run a script.
fn relative(name: &str) -> String {
    let mut out = String::from("./");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                out.push(char::from(byte));
            }
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

fn is_number(cell: &str) -> bool {
    let digits = cell.trim().trim_start_matches(['-', '−', '+', '±', '<', '>', '≤', '≥', '[', ' ']);
    digits.starts_with(|c: char| c.is_ascii_digit()) || matches!(cell.trim(), "" | "–" | "-")
}

fn table(out: &mut String, table: &Table, number: usize) {
    let numeric: Vec<bool> = (0..table.columns.len())
        .map(|column| {
            let mut cells = table.rows.iter().filter_map(|row| row.get(column));
            !table.rows.is_empty() && cells.all(|cell| is_number(cell))
        })
        .collect();
    let class = |column: usize| {
        if numeric.get(column).copied().unwrap_or(false) { " class=\"number\"" } else { "" }
    };
    put(
        out,
        format_args!(
            "<div class=\"scroll\" role=\"region\" aria-label=\"Table {number}\" \
             tabindex=\"0\"><table><caption>Table {number}. {}</caption>\n<thead><tr>",
            markdown::inline(&table.caption)
        ),
    );
    for (column, heading) in table.columns.iter().enumerate() {
        put(out, format_args!("<th scope=\"col\"{}>{}</th>", class(column), escape(heading)));
    }
    put(out, format_args!("</tr></thead>\n<tbody>"));
    for row in &table.rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(column), markdown::inline(cell));
        }
        put(out, format_args!("</tr>"));
    }
    put(out, format_args!("</tbody></table></div>"));
}

fn facts(out: &mut String, report: &Report) {
    let code = |text: &str| format!("<code>{}</code>", escape(text));
    let seeds: Vec<String> = report.seeds.iter().map(ToString::to_string).collect();
    let mut rows = vec![
        ("Command".to_owned(), code(&report.command), report.command.is_empty()),
        ("Seeds".to_owned(), escape(&seeds.join(", ")), seeds.is_empty()),
        ("Commit".to_owned(), code(&report.commit), report.commit.is_empty()),
        ("Arm".to_owned(), escape(&report.arm), report.arm.is_empty()),
        ("Machine".to_owned(), escape(&report.machine), report.machine.is_empty()),
    ];
    if let Some(date) = &report.date {
        rows.push(("Date".to_owned(), escape(date), date.is_empty()));
    }
    if let Some(seconds) = report.duration_s {
        rows.push(("Duration".to_owned(), escape(&super::text::duration(seconds)), false));
    }
    rows.extend(report.facts.iter().map(|(name, value)| (name.clone(), escape(value), false)));
    put(out, format_args!("<h2>How this report was produced</h2>\n<dl>"));
    for (name, value, _) in rows.iter().filter(|(_, _, absent)| !absent) {
        put(out, format_args!("<dt>{}</dt><dd>{value}</dd>", escape(name)));
    }
    put(out, format_args!("</dl>"));
}
