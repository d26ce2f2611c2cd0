use super::{ClaimRow, ClaimTable, Graphic, Mark, Outcome, Report, Section, Table};
use crate::{Axis, Figure, Point, Series};

fn outcome(mark: Mark) -> Outcome {
    let words = match mark {
        Mark::Tick => "reproduced",
        Mark::Up => "better",
        Mark::Cross => "differs",
        Mark::None => "not measured",
    };
    Outcome { words: words.to_owned(), mark }
}

fn claim(id: &str, mark: Mark) -> ClaimRow {
    ClaimRow {
        id: id.to_owned(),
        figure: "Table 6".to_owned(),
        metric: "variation by payload".to_owned(),
        paper: Some(50.7),
        band: [45.0, 56.0],
        is_order: false,
        is_run: true,
        measured: (mark != Mark::None).then_some(48.0),
        interval: Some([47.5, 48.25]),
        unit: "%".to_owned(),
        outcome: outcome(mark),
        note: "within 5 points".to_owned(),
        cause: if mark == Mark::Cross { "another disk".to_owned() } else { String::new() },
    }
}

fn figure() -> Figure {
    let points = vec![Point::new(1.0, 2.0), Point::new(2.0, 3.0)];
    let series = vec![Series::line("a <b>", points)];
    Figure::series("title", Axis::linear("x", "s"), Axis::linear("y", ""), series)
}

fn report() -> Report {
    Report {
        title: "A & B <report>".to_owned(),
        subtitle: "sub".to_owned(),
        command: "weir lab run 'x.toml' --seed 1".to_owned(),
        seeds: vec![1, 2, 3],
        commit: "abc1234".to_owned(),
        duration_s: Some(3725.0),
        arm: "simulator".to_owned(),
        machine: "2 cores".to_owned(),
        claims: ClaimTable {
            rows: vec![
                claim("one", Mark::Tick),
                claim("two", Mark::Cross),
                claim("three", Mark::None),
            ],
            outcomes: [Mark::Tick, Mark::Up, Mark::Cross, Mark::None].map(outcome).into(),
        },
        sections: vec![Section {
            heading: "Results <1>".to_owned(),
            text: "First **bold <i>** and `code <c>`.\n\n- item \
                   [link](https://example.org/?a=1&b=2)\n- [bad](javascript:alert(1))\n\n\
                   ```\nx < y\n```"
                .to_owned(),
            graphics: vec![
                Graphic::of(&figure(), "A caption.").command("weir a > b").files(["a b.csv"]),
                Graphic::of(&figure(), "Another."),
            ],
            tables: vec![Table {
                caption: "Runs".to_owned(),
                columns: vec!["Run".to_owned(), "Name".to_owned()],
                rows: vec![vec!["1".to_owned(), "<x>".to_owned()]],
            }],
        }],
        warnings: vec!["a **smoke** run".to_owned()],
        facts: vec![("Events".to_owned(), "12".to_owned())],
        ..Report::default()
    }
}

#[test]
fn page_is_self_contained() {
    let html = report().to_html();
    assert!(html.starts_with("<!doctype html>"));
    assert!(html.contains("default-src 'none'"));
    for mark in ["<script", "<link", "<iframe", "<img", "src=", "@import", "url("] {
        assert!(!html.contains(mark), "{mark}");
    }
    // These addresses are links and the SVG namespace, which nothing fetches.
    let outside: Vec<&str> =
        html.split("http").skip(1).map(|rest| &rest[..rest.len().min(27)]).collect();
    for address in outside {
        let known = address.starts_with("s://example.org/?a=1&amp;b")
            || address.starts_with("://www.w3.org/2000/svg")
            || address.starts_with("-equiv=");
        assert!(known, "{address}");
    }
}

#[test]
fn texts_are_escaped_and_marked_up() {
    let html = report().to_html();
    assert!(html.contains("<h1>A &amp; B &lt;report&gt;</h1>"));
    assert!(html.contains("<strong>bold &lt;i&gt;</strong> and <code>code &lt;c&gt;</code>"));
    assert!(html.contains("<a href=\"https://example.org/?a=1&amp;b=2\">link</a>"));
    assert!(html.contains("[bad](javascript:alert(1))"), "an unsafe link stays text");
    assert!(html.contains("<pre><code>x &lt; y</code></pre>"));
    assert!(html.contains("<td>&lt;x&gt;</td>"));
    assert!(html.contains("a <strong>smoke</strong> run"));
}

#[test]
fn page_shows_the_facts_of_the_run() {
    let html = report().to_html();
    for fact in [
        "<dt>Command</dt><dd><code>weir lab run &#39;x.toml&#39; --seed 1</code></dd>",
        "<dt>Seeds</dt><dd>1, 2, 3</dd>",
        "<dt>Commit</dt><dd><code>abc1234</code></dd>",
        "<dt>Arm</dt><dd>simulator</dd>",
        "<dt>Machine</dt><dd>2 cores</dd>",
        "<dt>Duration</dt><dd>1 h 2 min</dd>",
        "<dt>Events</dt><dd>12</dd>",
    ] {
        assert!(html.contains(fact), "{fact}");
    }
    assert!(!html.contains("<dt>Date</dt>"));
}

#[test]
fn claims_and_verdicts_precede_the_body() {
    let html = report().to_html();
    let table = html.find("class=\"claims\"").expect("claims");
    assert!(table < html.find("Results &lt;1&gt;").expect("section"));
    for text in ["1 reproduced", "1 differs", "1 not measured", "50.7 %", "48 %"] {
        assert!(html.contains(text), "{text}");
    }
    for text in ["[45 %, 56 %]", "[47.5 %, 48.25 %]", "within 5 points", "another disk"] {
        assert!(html.contains(text), "{text}");
    }
    assert_eq!(html.matches("<span class=\"verdict").count(), 3);
    assert!(html.contains("id=\"claim-two\""));
}

#[test]
fn figures_have_numbers_captions_words_and_files() {
    let html = report().to_html();
    assert!(html.contains("<strong>Figure 1.</strong> A caption."));
    assert!(html.contains("<strong>Figure 2.</strong> Another."));
    assert!(html.contains("<a href=\"./a%20b.csv\">a b.csv</a>"));
    assert!(html.contains("Made by <code>weir a &gt; b</code>"));
    assert!(html.contains("aria-label=\"title. Lines of y over x [s]: a &lt;b&gt;.\""));
}

#[test]
fn embedded_drawings_keep_ids_apart() {
    let svg = "<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\">\
               <defs><marker id=\"m\"/></defs><path marker-end=\"url(#m)\"/>\
               <use href=\"#m\"/></svg>";
    let out = super::embed::drawing(svg, 3);
    assert!(out.starts_with("<svg"));
    for text in ["id=\"d3-m\"", "url(#d3-m)", "href=\"#d3-m\""] {
        assert!(out.contains(text), "{out}");
    }
}

#[test]
fn active_drawings_are_rejected() {
    for bad in [
        "<svg><script>1</script></svg>",
        "<svg onload=\"x()\"></svg>",
        "<svg><g\nonclick='x()'/></svg>",
        "<svg><image href=\"a.png\"/></svg>",
        "<svg><a href=\"https://example.org\"/></svg>",
        "<svg><rect fill=\"url(https://example.org)\"/></svg>",
        "<svg><style>@import 'x.css'</style></svg>",
        "<svg><foreignObject/></svg>",
        "no drawing",
    ] {
        assert!(super::embed::drawing(bad, 1).contains("left out"), "{bad}");
    }
    let text = "<svg><text>onload= href=x url(y)</text></svg>";
    assert!(!super::embed::drawing(text, 1).contains("left out"), "text is only text");
}

#[test]
fn terminal_output_is_a_table() {
    let text = report().claims.to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("verdict       claim"), "{text}");
    assert!(lines[2].starts_with("reproduced    one"), "{text}");
    assert!(lines[2].ends_with("50.7 %  [45 %, 56 %]      48 %  [47.5 %, 48.25 %]"), "{text}");
    assert!(lines[3].starts_with("differs       two"), "{text}");
    assert!(lines[4].trim() == "another disk", "a claim that differs says why: {text}");
    let counts = "3 claims: 1 reproduced, 0 better, 1 differs, 1 not measured";
    assert_eq!(lines.last(), Some(&counts));
    let mut hostile = report();
    hostile.claims.rows[0].metric = "a\u{1b}[2J\nb".to_owned();
    assert!(!hostile.claims.to_text().contains('\u{1b}'));
}

#[test]
fn the_same_report_is_the_same_page() {
    assert_eq!(report().to_html(), report().to_html());
}

#[test]
fn durations_read_well() {
    use super::text::duration;
    assert_eq!(duration(0.25), "250 ms");
    assert_eq!(duration(754.2), "12 min 34 s");
    assert_eq!(duration(f64::NAN), "unknown");
}
