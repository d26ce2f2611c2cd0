//! Embeds drawings in a page.

/// Prepares SVG text for HTML: removes its XML head, and makes its ids unique, because many
/// drawings share a page. Rejects a drawing that could run or fetch something.
pub(super) fn drawing(svg: &str, number: usize) -> String {
    let refused = "<p>This drawing was left out: it is not plain SVG.</p>\n".to_owned();
    let Some(start) = svg.find("<svg") else { return refused };
    let body = &svg[start..];
    let lower = body.to_ascii_lowercase();
    let active = ["<script", "<foreignobject", "<iframe", "javascript:", "<image", "<!entity"];
    if active.iter().any(|what| lower.contains(what)) || handler(&lower) || fetches(&lower) {
        return refused;
    }
    let body = body
        .replace("id=\"", &format!("id=\"d{number}-"))
        .replace("url(#", &format!("url(#d{number}-"))
        .replace("href=\"#", &format!("href=\"#d{number}-"));
    if body.ends_with('\n') { body } else { format!("{body}\n") }
}

/// The inner text of every tag. A quoted `>` ends one early, which can only cause a rejection.
fn tags(lower: &str) -> impl Iterator<Item = &str> {
    lower.split('<').skip(1).map(|tag| tag.split('>').next().unwrap_or(""))
}

/// Whether an element has an attribute such as `onload=`.
fn handler(lower: &str) -> bool {
    tags(lower).any(|tag| {
        // Quoted text is not an attribute name.
        let names: String = tag.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        names.split([' ', '\n', '\t', '/']).any(|word| word.starts_with("on") && word.contains('='))
    })
}

/// Whether a tag or a style refers to something outside the drawing.
fn fetches(lower: &str) -> bool {
    let outside = |text: &str, mark: &str| {
        text.match_indices(mark).any(|(at, _)| {
            let target = text[at + mark.len()..].trim_start_matches(['"', '\'', ' ']);
            !target.starts_with('#')
        })
    };
    let style = lower.contains("<style") && (lower.contains("@import") || outside(lower, "url("));
    style || tags(lower).any(|tag| outside(tag, "href=") || outside(tag, "url("))
}
