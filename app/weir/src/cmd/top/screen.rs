//! Draws the screen of `weir top`.
//!
//! A wide screen has blocks side by side, a narrow one a line for each fact. What does not fit is
//! left out, the least important first.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr as _;

use super::report::{DiskRow, Disks, Flow, Rate, Report, Sort};
use super::table::{Row, Table, pad_left, pad_right};
use crate::table::{count, cut, octets, printable, shortened, span};

/// The least width for blocks side by side.
const WIDE_MIN: usize = 74;
/// Lines of a table: an empty one, its heading and one row.
const TABLE_LINES_MIN: usize = 3;

/// All that the screen depends on.
pub(super) struct View<'a> {
    pub(super) uri: &'a str,
    /// `None` before the first answer.
    pub(super) report: Option<&'a Report>,
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    /// The time without an answer, if it is too long.
    pub(super) silence: Option<Duration>,
    /// Why there is no answer.
    pub(super) problem: Option<&'a str>,
    pub(super) has_color: bool,
}

pub(super) fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = vec![header(view, width)];
    let help_lines = usize::from(height >= 3);
    let body_height = height.saturating_sub(1 + help_lines);
    match view.report {
        Some(report) => lines.extend(body(view, report, width, body_height)),
        None if view.silence.is_none() => lines.push(Line::raw("  waiting for the router")),
        None => lines.extend(view.problem.map(|problem| problem_line(view, problem, width))),
    }
    lines.truncate(height - help_lines.min(height));
    for (line, y) in lines.iter().zip(area.y..) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
    if help_lines > 0 {
        let y = area.bottom() - 1;
        frame.render_widget(help(view, width), Rect { y, height: 1, ..area });
    }
}

/// Name, state and address.
fn header(view: &View<'_>, width: usize) -> Line<'static> {
    let has_room = width >= 40;
    let state = match (view.silence, view.report) {
        (Some(silence), _) => {
            let time = span(1000 * silence.as_secs().max(1));
            if has_room {
                format!("no answer from the router for {time}")
            } else {
                format!("no answer {time}")
            }
        }
        (None, Some(report)) if width >= WIDE_MIN => {
            format!("{}, up {}", printable(&report.version), span(report.uptime_ms))
        }
        (None, Some(report)) => format!("up {}", span(report.uptime_ms)),
        (None, None) => "connected".to_owned(),
    };
    let title = match (has_room, view.silence) {
        (true, _) => "weir top  ",
        (false, None) => "weir  ",
        (false, Some(_)) => "",
    };
    let paused = if view.is_paused { "PAUSED  " } else { "" };
    let mut text = format!(" {title}{paused}{state}");
    let left = width.saturating_sub(text.width() + 3);
    if left >= 12 {
        text += &format!("  {}", shortened(&printable(view.uri), left));
    }
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
    let alarm = if view.has_color { style.fg(Color::Red) } else { style };
    let style = if view.silence.is_some() { alarm } else { style };
    Line::styled(pad_right(cut(&text, width), width), style)
}

fn help(view: &View<'_>, width: usize) -> Line<'static> {
    let pause = if view.is_paused { "p continue" } else { "p pause" };
    let long = format!(" q quit   s sort: {}   {pause}", view.sort.label());
    let forms = [long, format!("q quit s sort {pause}"), "q quit".to_owned()];
    let fitting = forms.into_iter().find(|form| form.width() <= width).unwrap_or_default();
    Line::styled(fitting, Style::new().add_modifier(Modifier::DIM))
}

fn body(view: &View<'_>, report: &Report, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(problem) = view.problem.filter(|_| height > 5) {
        lines.push(problem_line(view, problem, width));
    }
    if width >= WIDE_MIN && height > 8 {
        lines.push(Line::default());
        lines.extend(summary(view, report));
    } else {
        lines.extend(facts(report).into_iter().filter_map(|fact| fact.line(width)));
    }
    let tables = [disk_table(report), Some(face_table(view, report)), object_table(view, report)];
    let tables: Vec<Table> = tables.into_iter().flatten().collect();
    let shares = divide(height.saturating_sub(lines.len()), &tables);
    for (table, share) in tables.iter().zip(shares) {
        if share >= TABLE_LINES_MIN {
            lines.push(Line::default());
            lines.extend(table_lines(view, table, width, share - 2));
        }
    }
    lines
}

fn problem_line(view: &View<'_>, problem: &str, width: usize) -> Line<'static> {
    let text = format!(" {}", printable(problem));
    let style = if view.has_color { Style::new().fg(Color::Red) } else { Style::new() };
    Line::styled(cut(&text, width).to_owned(), style)
}

fn heading_style(view: &View<'_>) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if view.has_color { style.fg(Color::Cyan) } else { style }
}

fn table_lines(
    view: &View<'_>,
    table: &Table,
    width: usize,
    rows_max: usize,
) -> Vec<Line<'static>> {
    let bad = if view.has_color { Style::new().fg(Color::Red) } else { Style::new().bold() };
    let lines = table.lines(width.saturating_sub(2), rows_max).into_iter().enumerate();
    let styled = lines.map(|(at, (text, is_bad))| {
        let style = match at {
            0 => heading_style(view),
            _ if is_bad => bad,
            _ => Style::new(),
        };
        Line::styled(format!(" {text}"), style)
    });
    styled.collect()
}

/// Divides the lines among tables: first the least for each, the last tables first, because faces
/// and objects matter more than disks. Then one line at a time to those that have more rows.
fn divide(height: usize, tables: &[Table]) -> Vec<usize> {
    let wanted: Vec<usize> = tables.iter().map(|table| table.rows.len().max(1) + 2).collect();
    let mut shares = vec![0; tables.len()];
    let mut left = height;
    for share in shares.iter_mut().rev() {
        if left >= TABLE_LINES_MIN {
            *share = TABLE_LINES_MIN;
            left -= TABLE_LINES_MIN;
        }
    }
    while left > 0 {
        let before = left;
        for (share, wanted) in shares.iter_mut().zip(&wanted) {
            if left > 0 && *share >= TABLE_LINES_MIN && *share < *wanted {
                *share += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    shares
}

/// Rates on the left, where Data came from on the right.
fn summary(view: &View<'_>, report: &Report) -> Vec<Line<'static>> {
    let flow = |label: &str, flow: Flow, text: fn(Rate) -> String| {
        [label.to_owned(), text(flow.received), text(flow.sent)]
    };
    let left = [
        ["Traffic".to_owned(), "RECEIVED/s".to_owned(), "SENT/s".to_owned()],
        flow("Interests", report.interests, number),
        flow("Data", report.data, number),
        flow("Nacks", report.nacks, number),
        flow("bytes", report.bytes, size),
        ["pending".to_owned(), report.pending.to_string(), "Interests".to_owned()],
    ];
    let mut right = vec![["Data sent from".to_owned(), "NOW".to_owned(), "SINCE START".to_owned()]];
    for source in &report.sources {
        right.push([source.label.to_owned(), percent(source.now), percent(source.since_start)]);
    }
    let mut lines: Vec<String> = left
        .iter()
        .map(|[label, received, sent]| {
            format!(" {}{}{}", pad_right(label, 10), pad_left(received, 12), pad_left(sent, 12))
        })
        .collect();
    for (line, [label, now, since]) in lines.iter_mut().zip(&right) {
        *line +=
            &format!("    {}{}{}", pad_right(label, 15), pad_left(now, 7), pad_left(since, 13));
    }
    if let Some(line) = lines.get_mut(right.len()) {
        *line += &store_text(report).map_or_else(String::new, |text| format!("    store  {text}"));
    }
    let style = |at| if at == 0 { heading_style(view) } else { Style::new() };
    lines.into_iter().enumerate().map(|(at, line)| Line::styled(line, style(at))).collect()
}

fn store_text(report: &Report) -> Option<String> {
    let store = report.store.as_ref()?;
    Some(match (store.used_bytes, store.capacity_bytes) {
        (Some(used), Some(capacity)) => format!("{} of {}", octets(used), octets(capacity)),
        _ => format!("{} packets", store.packets),
    })
}

/// A fact of a narrow screen, in several forms, the longest first.
struct Fact {
    label: &'static str,
    forms: Vec<String>,
}

impl Fact {
    /// The longest form that fits.
    fn line(&self, width: usize) -> Option<Line<'static>> {
        let lines = self.forms.iter().map(|form| format!("{} {form}", pad_right(self.label, 11)));
        lines.into_iter().find(|line| line.width() <= width).map(Line::raw)
    }
}

/// The most important fact first.
fn facts(report: &Report) -> Vec<Fact> {
    let flow = |label, flow: Flow, text: fn(Rate) -> String| {
        let (received, sent) = (text(flow.received), text(flow.sent));
        let short = format!("{received} in");
        Fact { label, forms: vec![format!("{received} in, {sent} out"), short, received] }
    };
    let mut facts =
        vec![flow("Interests/s", report.interests, number), flow("bytes/s", report.bytes, size)];
    for source in &report.sources {
        let label = match source.label {
            "memory" => "from memory",
            "disk" => "from disk",
            "store" => "from store",
            _ => "forwarded",
        };
        let (now, since) = (percent(source.now), percent(source.since_start));
        facts.push(Fact { label, forms: vec![format!("{now}, {since} since start"), now] });
    }
    facts.push(flow("Data/s", report.data, number));
    facts.extend(store_text(report).map(|text| Fact { label: "store", forms: vec![text] }));
    facts.push(Fact { label: "pending", forms: vec![report.pending.to_string()] });
    facts
}

/// `None` without disks.
fn disk_table(report: &Report) -> Option<Table> {
    let disks = report.disks.as_ref()?;
    let sum = |rate: fn(&DiskRow) -> Rate| disks.rows.iter().map(rate).sum::<Rate>();
    let all = |name: String| Row {
        name,
        cells: vec![
            size(sum(|disk| disk.read)),
            size(sum(|disk| disk.written)),
            disks.latency_ns.map_or_else(|| "-".to_owned(), milliseconds),
            octets(disks.used_bytes),
            octets(disks.capacity_bytes),
        ],
        is_bad: disks.stalled > 0,
    };
    let mut rows = Vec::new();
    match &disks.rows[..] {
        [only] => rows.push(all(with_state(&only.path, disks_state(disks)))),
        several => {
            rows.push(all(with_state("all", disks_state(disks))));
            rows.extend(several.iter().map(disk_row));
        }
    }
    Some(Table {
        title: format!("Disks ({})", disks.count),
        headings: vec!["READ/s", "WRITTEN/s", "LATENCY", "USED", "SIZE"],
        rows,
        empty: "",
    })
}

fn disk_row(disk: &DiskRow) -> Row {
    let state = match (disk.is_dead, disk.failures) {
        (true, _) => Some("failed".to_owned()),
        (false, 0) => None,
        (false, failures) => Some(count(failures, "error", "errors")),
    };
    let unknown = || "-".to_owned();
    let capacity = octets(disk.capacity_bytes);
    let cells = vec![size(disk.read), size(disk.written), unknown(), unknown(), capacity];
    Row { name: with_state(&disk.path, state), cells, is_bad: disk.is_dead }
}

/// A name, with the state of what it names if that is not as usual.
fn with_state(name: &str, state: Option<String>) -> String {
    state.map_or_else(|| name.to_owned(), |state| format!("{name} ({state})"))
}

fn disks_state(disks: &Disks) -> Option<String> {
    match disks.stalled {
        0 if disks.is_recovering => Some("recovery".to_owned()),
        0 => None,
        1 if disks.count == 1 => Some("not responding".to_owned()),
        stalled => Some(format!("{stalled} not responding")),
    }
}

fn face_table(view: &View<'_>, report: &Report) -> Table {
    let faces = report.sorted_faces(view.sort).into_iter();
    let rows = faces.map(|face| Row {
        name: format!("{:>5}  {}", face.id.0, face.uri),
        cells: vec![
            size(face.bytes.received),
            size(face.bytes.sent),
            number(face.interests),
            number(face.data),
            octets(face.total_bytes),
        ],
        is_bad: false,
    });
    Table {
        title: format!("Faces ({})", report.faces.len()),
        headings: vec!["RECEIVED/s", "SENT/s", "INTERESTS/s", "DATA/s", "TOTAL"],
        rows: rows.collect(),
        empty: "no faces",
    }
}

/// `None` if the router does not list objects.
fn object_table(view: &View<'_>, report: &Report) -> Option<Table> {
    report.objects.as_ref()?;
    let objects = report.sorted_objects(view.sort).into_iter();
    let rows = objects.map(|object| Row {
        name: object.name.to_string(),
        cells: vec![
            size(object.served),
            number(object.hits),
            octets(object.total_served_bytes),
            octets(object.held_bytes),
        ],
        is_bad: false,
    });
    Some(Table {
        title: format!("Objects in the store ({})", report.objects_total),
        headings: vec!["SERVED/s", "HITS/s", "TOTAL", "HELD"],
        rows: rows.collect(),
        empty: "no objects",
    })
}

/// A rate with about three digits: `0`, `7.5`, `250`, `12345`, `150k`, `1.2M`.
fn number(rate: Rate) -> String {
    let Some(rate) = rate else { return "-".to_owned() };
    match rate {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{rate:.1}"),
        ..99_999.5 => format!("{rate:.0}"),
        ..999_500.0 => format!("{:.0}k", rate / 1e3),
        _ => format!("{:.1}M", rate / 1e6),
    }
}

fn size(rate: Rate) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| octets(rate.round() as u64))
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}

fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 9.995 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}
