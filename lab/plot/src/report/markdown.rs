//! A small subset of Markdown: paragraphs, lists, fenced code, `**bold**`, code and links.
//!
//! All text is escaped before it is marked up, so it cannot become HTML.

use crate::draw::escape;

/// Paragraphs, lists and fenced code.
pub(super) fn blocks(text: &str) -> String {
    let mut out = String::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut items: Vec<String> = Vec::new();
    let mut code: Option<Vec<&str>> = None;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            match code.take() {
                Some(lines) => fenced(&mut out, &lines),
                None => {
                    flush(&mut out, &mut paragraph, &mut items);
                    code = Some(Vec::new());
                }
            }
            continue;
        }
        if let Some(lines) = &mut code {
            lines.push(line);
        } else if let Some(item) = line.trim_start().strip_prefix("- ") {
            flush_paragraph(&mut out, &mut paragraph);
            items.push(item.to_owned());
        } else if line.trim().is_empty() {
            flush(&mut out, &mut paragraph, &mut items);
        } else if let Some(item) = items.last_mut() {
            // A line without a mark continues the item above it.
            item.push(' ');
            item.push_str(line.trim());
        } else {
            paragraph.push(line);
        }
    }
    if let Some(lines) = code {
        fenced(&mut out, &lines);
    }
    flush(&mut out, &mut paragraph, &mut items);
    out
}

fn fenced(out: &mut String, lines: &[&str]) {
    let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
    out.push_str(&format!("<pre><code>{}</code></pre>\n", lines.join("\n")));
}

fn flush_paragraph(out: &mut String, paragraph: &mut Vec<&str>) {
    if !paragraph.is_empty() {
        out.push_str(&format!("<p>{}</p>\n", inline(&paragraph.join("\n"))));
        paragraph.clear();
    }
}

fn flush(out: &mut String, paragraph: &mut Vec<&str>, items: &mut Vec<String>) {
    flush_paragraph(out, paragraph);
    if !items.is_empty() {
        out.push_str("<ul>\n");
        for item in items.drain(..) {
            out.push_str(&format!("<li>{}</li>\n", inline(&item)));
        }
        out.push_str("</ul>\n");
    }
}

/// Bold, code and links within a line.
pub(super) fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some((inner, after)) = enclosed(rest, "`", "`") {
            out.push_str(&format!("<code>{}</code>", escape(inner)));
            rest = after;
        } else if let Some((inner, after)) = enclosed(rest, "**", "**") {
            out.push_str(&format!("<strong>{}</strong>", inline(inner)));
            rest = after;
        } else if let Some((label, address, after)) = link(rest) {
            out.push_str(&format!("<a href=\"{}\">{}</a>", escape(address), escape(label)));
            rest = after;
        } else {
            // Up to the next character that could start a mark.
            let first = rest.chars().next().map_or(1, char::len_utf8);
            let next = rest[first..].find(['`', '*', '[']).map_or(rest.len(), |at| at + first);
            out.push_str(&escape(&rest[..next]));
            rest = &rest[next..];
        }
    }
    out
}

fn enclosed<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str)> {
    let inner = text.strip_prefix(open)?;
    let end = inner.find(close).filter(|end| *end > 0)?;
    Some((&inner[..end], &inner[end + close.len()..]))
}

/// `[label](address)`, where the address is on the web, in this page, or a file next to it.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (label, after) = enclosed(text, "[", "]")?;
    let (address, after) = enclosed(after, "(", ")")?;
    let safe = ["https://", "http://", "#", "./"].iter().any(|start| address.starts_with(start));
    (safe && !address.contains(char::is_whitespace)).then_some((label, address, after))
}
