//! Writes the SVG document.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::label::{Label, Rect, Scene, along_link, around_node};
use super::layout::{self, Point};
use super::text::{escape, short_duration, short_rate, width};
use super::{DrawOptions, LinkLabels};
use crate::model::{Link, Node, Role, Topology};

/// Larger networks show names only on request.
const NAMED_NODES_MAX: usize = 150;
const MARGIN: f64 = 18.0;
const LINK_COLOUR: &str = "#8d98a5";
const TEXT_COLOUR: &str = "#1c2733";

/// Colours that remain distinguishable with colour blindness (Okabe and Ito). Shapes differ too.
fn colour(role: Role) -> &'static str {
    match role {
        Role::Router => "#0072b2",
        Role::Producer => "#d55e00",
        Role::Consumer => "#009e73",
    }
}

fn role_name(role: Role, count: usize) -> String {
    let name = match role {
        Role::Router => "router",
        Role::Producer => "producer",
        Role::Consumer => "consumer",
    };
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// One decimal, without a trailing zero.
fn number(value: f64) -> String {
    format!("{}", (value * 10.0).round() / 10.0 + 0.0)
}

/// Larger networks have straight links, even through nodes.
const BENT_NODES_MAX: usize = 120;

/// A quadratic curve; a straight line if the control point is in the middle.
struct Curve {
    from: Point,
    control: Point,
    to: Point,
    bent: bool,
}

impl Curve {
    /// A curve whose middle is offset from the straight line by `aside`.
    fn new(from: Point, to: Point, aside: f64) -> Self {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1e-9);
        // The control point lies twice as far from the line as the middle of the curve.
        let (x, y) = (-dy / length * aside * 2.0, dx / length * aside * 2.0);
        let control = ((from.0 + to.0) / 2.0 + x, (from.1 + to.1) / 2.0 + y);
        Self { from, control, to, bent: aside != 0.0 }
    }

    fn at(&self, share: f64) -> Point {
        let (a, b, c) = ((1.0 - share).powi(2), 2.0 * share * (1.0 - share), share.powi(2));
        (
            a * self.from.0 + b * self.control.0 + c * self.to.0,
            a * self.from.1 + b * self.control.1 + c * self.to.1,
        )
    }

    fn halves(&self) -> [(Point, Point); 2] {
        [(self.from, self.at(0.5)), (self.at(0.5), self.to)]
    }

    fn path(&self) -> String {
        let pair = |point: Point| format!("{} {}", number(point.0), number(point.1));
        match self.bent {
            true => format!("M{}Q{} {}", pair(self.from), pair(self.control), pair(self.to)),
            false => format!("M{}L{}", pair(self.from), pair(self.to)),
        }
    }
}

/// Everything in pixels.
struct Picture<'a> {
    topology: &'a Topology,
    options: &'a DrawOptions,
    width: f64,
    height: f64,
    points: Vec<Point>,
    radius: f64,
    font: f64,
    names: bool,
    rates: Vec<Option<u64>>,
}

pub(super) fn draw(topology: &Topology, options: &DrawOptions) -> String {
    let picture = Picture::new(topology, options);
    let mut body = String::new();
    let curves = picture.curves();
    picture.draw_links(&mut body, &curves);
    picture.draw_nodes(&mut body);
    let left_out = picture.draw_labels(&mut body, &curves);
    let title = options.title.as_deref().unwrap_or(topology.name());
    let mut out = String::new();
    let (mut top, mut bottom) = (0.0, picture.height);
    if !title.is_empty() {
        // The title is above the picture, at negative coordinates.
        top = -34.0;
        let (x, y) = (number(picture.width / 2.0), number(top + 24.0));
        let _ = writeln!(
            body,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"17\" font-weight=\"bold\" \
             text-anchor=\"middle\">{}</text>",
            escape(title)
        );
    }
    if options.legend {
        bottom += picture.draw_legend(&mut body, left_out);
    }
    let (view_width, view_height) = (picture.width, bottom - top);
    let outer = f64::from(options.width.max(200));
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" \
         viewBox=\"0 {} {} {}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" \
         fill=\"{TEXT_COLOUR}\" role=\"img\" \
         aria-label=\"{}\">",
        number(outer),
        number(outer * view_height / view_width),
        number(top),
        number(view_width),
        number(view_height),
        escape(&format!(
            "Network {title}: {} nodes and {} links",
            topology.nodes().len(),
            topology.links().len()
        )),
    );
    let _ = writeln!(
        out,
        "<rect x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#fff\"/>",
        number(top),
        number(view_width),
        number(view_height)
    );
    out.push_str(&body);
    out.push_str("</svg>\n");
    out
}

impl<'a> Picture<'a> {
    fn new(topology: &'a Topology, options: &'a DrawOptions) -> Self {
        let nodes = topology.nodes();
        let names = options.node_labels.unwrap_or(nodes.len() <= NAMED_NODES_MAX);
        let font = match nodes.len() {
            0..=45 => 13.0,
            46..=100 => 11.0,
            _ => 9.0,
        };
        let mut rates: Vec<_> = topology.links().iter().map(|link| link.rate_bps).collect();
        rates.sort_unstable_by_key(|rate| rate.unwrap_or(u64::MAX));
        rates.dedup();
        let points = layout::place(topology, options.placement);
        let mut picture = Self {
            topology,
            options,
            width: f64::from(options.width.max(200)),
            height: 0.0,
            points,
            radius: 0.0,
            font,
            names,
            rates,
        };
        picture.fit();
        picture
    }

    /// Scales the points to pixels, and chooses the size of the picture and of the nodes.
    fn fit(&mut self) {
        let widest = self.topology.nodes().iter().map(|node| width(&node.name, self.font));
        let name_width = if self.names { widest.fold(0.0, f64::max).min(110.0) } else { 0.0 };
        let (side, above) = (MARGIN + name_width + 8.0, MARGIN + self.font + 8.0);
        if self.points.is_empty() {
            self.height = 60.0;
            return;
        }
        let (low, high) = layout::bounds(&self.points);
        let (extent_x, extent_y) = (high.0 - low.0, high.1 - low.1);
        let lengths = self.topology.links().iter().map(|link| {
            let (a, b) = (self.points[link.a], self.points[link.b]);
            (a.0 - b.0).hypot(a.1 - b.1)
        });
        // A small network is not enlarged beyond what link labels need.
        let room = if self.options.link_labels == LinkLabels::None { 150.0 } else { 230.0 };
        let usual = layout::median(lengths.collect()).filter(|&length| length > 0.0);
        let scale = (self.width - 2.0 * side).max(50.0) / extent_x.max(1e-9);
        let scale = scale.min((self.width * 0.95).max(100.0) / extent_y.max(1e-9));
        let scale = usual.map_or(scale, |usual| scale.min(room / usual));
        let scale = if extent_x.max(extent_y) > 0.0 { scale } else { 1.0 };
        let least = (self.width * 0.55).max(200.0).min(self.width);
        self.width = (extent_x * scale + 2.0 * side).clamp(least, self.width);
        self.height = extent_y * scale + 2.0 * above;
        let shift = (self.width - extent_x * scale) / 2.0;
        for point in &mut self.points {
            *point = ((point.0 - low.0) * scale + shift, (point.1 - low.1) * scale + above);
        }
        let by_links = usual.map_or(8.0, |usual| usual * scale * 0.11);
        let by_room = layout::median_gap(&self.points).map_or(8.0, |gap| gap * 0.42);
        self.radius = by_links.min(by_room).clamp(1.8, 9.0);
    }

    /// The curve of each link. Parallel links are next to each other, and a link that would cross
    /// another node bends around it.
    fn curves(&self) -> Vec<Curve> {
        let mut before = BTreeMap::new();
        let pair = |link: &Link| (link.a.min(link.b), link.a.max(link.b));
        let mut all = BTreeMap::new();
        for link in self.topology.links() {
            *all.entry(pair(link)).or_insert(0usize) += 1;
        }
        let look_for_nodes = self.points.len() <= BENT_NODES_MAX;
        let place = |link: &Link| {
            let (a, b) = pair(link);
            let (from, to) = (self.points[a], self.points[b]);
            let index = before.entry((a, b)).or_insert(0usize);
            let count = all.get(&(a, b)).copied().unwrap_or(1);
            let shift = (*index as f64 - (count - 1) as f64 / 2.0) * self.radius.max(3.0) * 3.0;
            *index += 1;
            let around = if look_for_nodes { self.way_around(a, b) } else { 0.0 };
            Curve::new(from, to, shift + around)
        };
        self.topology.links().iter().map(place).collect()
    }

    /// How far the middle of a link from `a` to `b` must move to avoid other nodes.
    fn way_around(&self, a: usize, b: usize) -> f64 {
        let (from, to) = (self.points[a], self.points[b]);
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1e-9);
        let clear = self.radius + 3.0;
        let mut way = 0.0f64;
        for (node, point) in self.points.iter().enumerate() {
            let (x, y) = (point.0 - from.0, point.1 - from.1);
            let along = (x * dx + y * dy) / length;
            let aside = (x * -dy + y * dx) / length;
            let between = clear < along && along < length - clear;
            if node == a || node == b || !between || aside.abs() >= clear {
                continue;
            }
            // At the fraction s of its length, the curve is 4 s (1 - s) times as far from the line
            // as at its middle.
            let share = along / length;
            let reach = (4.0 * share * (1.0 - share)).max(0.15);
            let needed = (clear + 2.0 - aside.abs()) / reach;
            if needed > way.abs() {
                way = if aside > 0.0 { -needed } else { needed };
            }
        }
        // A large detour would be harder to follow than a link through a node.
        if way.abs() > length * 0.15 { 0.0 } else { way }
    }

    /// Wider for faster links, if there are several rates.
    fn stroke_width(&self, rate: Option<u64>) -> f64 {
        let thin = if self.topology.links().len() > 800 { 0.5 } else { 1.0 };
        if self.rates.len() < 2 {
            return 1.5 * thin;
        }
        let Some(rate) = rate else { return thin };
        let known = || self.rates.iter().flatten().map(|&rate| (rate as f64).ln());
        let (low, high) = known().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(r), h.max(r)));
        let share = ((rate as f64).ln() - low) / (high - low).max(1e-9);
        (1.0 + 2.6 * share) * thin
    }

    fn draw_links(&self, out: &mut String, curves: &[Curve]) {
        let _ =
            writeln!(out, "<g stroke=\"{LINK_COLOUR}\" stroke-linecap=\"round\" fill=\"none\">");
        for (link, curve) in self.topology.links().iter().zip(curves) {
            let dash = match (link.rate_bps, self.rates.len()) {
                (None, 2..) => " stroke-dasharray=\"5 3\"",
                _ => "",
            };
            let _ = writeln!(
                out,
                "<path d=\"{}\" stroke-width=\"{}\"{dash}><title>{}</title></path>",
                curve.path(),
                number(self.stroke_width(link.rate_bps)),
                escape(&self.describe_link(link)),
            );
        }
        out.push_str("</g>\n");
    }

    fn describe_link(&self, link: &Link) -> String {
        let nodes = self.topology.nodes();
        let mut text = format!("{} - {}", nodes[link.a].name, nodes[link.b].name);
        if let Some(rate_bps) = link.rate_bps {
            let _ = write!(text, ", {}", short_rate(rate_bps));
        }
        let _ = write!(text, ", {}, cost {}", short_duration(link.delay_ns), link.cost);
        if link.loss > 0.0 {
            let _ = write!(text, ", loss {}", link.loss);
        }
        text
    }

    fn draw_nodes(&self, out: &mut String) {
        let outline = (self.radius * 0.2).clamp(0.5, 1.4);
        let _ = writeln!(out, "<g stroke=\"#fff\" stroke-width=\"{}\">", number(outline));
        for (node, &point) in self.topology.nodes().iter().zip(&self.points) {
            shape(out, node.role, point, self.radius, &describe_node(node));
        }
        out.push_str("</g>\n");
    }

    /// Writes names and link labels. Returns the number of link labels that did not fit.
    fn draw_labels(&self, out: &mut String, curves: &[Curve]) -> usize {
        let size = 2.0 * self.radius;
        let nodes: Vec<_> =
            self.points.iter().map(|&point| Rect::around(point, size, size)).collect();
        let frame =
            Rect { left: 2.0, top: 2.0, right: self.width - 2.0, bottom: self.height - 2.0 };
        let segments: Vec<_> = curves.iter().flat_map(Curve::halves).collect();
        let scene = Scene { frame, nodes: &nodes, links: &segments };
        let mut written = Vec::new();
        let _ = writeln!(
            out,
            "<g text-anchor=\"middle\" stroke=\"#fff\" stroke-width=\"3\" \
             stroke-linejoin=\"round\" paint-order=\"stroke\">"
        );
        if self.names {
            let label = |(node, &point): (&Node, &Point)| {
                around_node(point, self.radius, width(&node.name, self.font), self.font)
            };
            let mut labels: Vec<Label> =
                self.topology.nodes().iter().zip(&self.points).map(label).collect();
            // Names come before the labels of links, which must avoid them.
            written = scene.choose(&mut labels, &[]);
            for (node, place) in self.topology.nodes().iter().zip(&written) {
                write_label(out, place, self.font, &node.name, None);
            }
        }
        out.push_str("</g>\n");
        self.draw_link_labels(out, curves, &scene, &written)
    }

    fn draw_link_labels(
        &self,
        out: &mut String,
        curves: &[Curve],
        scene: &Scene<'_>,
        names: &[Rect],
    ) -> usize {
        let font = self.font * 0.78;
        let mut written = names.to_vec();
        let (mut left_out, no_links) = (0, Vec::new());
        // A link's label may cover links, because it has its own background.
        let scene = Scene { frame: scene.frame, nodes: scene.nodes, links: &no_links };
        out.push_str("<g text-anchor=\"middle\">\n");
        for (link, curve) in self.topology.links().iter().zip(curves) {
            let Some(text) = self.link_text(link) else { continue };
            let mut label = [along_link(|share| curve.at(share), width(&text, font), font)];
            let place = scene.choose(&mut label, &written)[0];
            let hidden = written.iter().chain(scene.nodes).map(|other| place.shared(other));
            if hidden.sum::<f64>() > 0.04 * place.area() {
                left_out += 1;
                continue;
            }
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\" fill=\"#fff\" \
                 fill-opacity=\"0.88\"/>",
                number(place.left - 2.0),
                number(place.top - 0.5),
                number(place.right - place.left + 4.0),
                number(place.bottom - place.top + 1.0),
            );
            write_label(out, &place, font, &text, Some("#46515c"));
            written.push(place);
        }
        out.push_str("</g>\n");
        left_out
    }

    fn link_text(&self, link: &Link) -> Option<String> {
        let delay = Some(link.delay_ns).filter(|&delay_ns| delay_ns > 0).map(short_duration);
        let rate = link.rate_bps.map(short_rate);
        match self.options.link_labels {
            LinkLabels::None => None,
            LinkLabels::Delay => delay,
            LinkLabels::Rate => rate,
            LinkLabels::Both => {
                let parts: Vec<_> = rate.into_iter().chain(delay).collect();
                Some(parts.join(", ")).filter(|text| !text.is_empty())
            }
        }
    }

    /// Draws the legend below the picture, and returns its height.
    fn draw_legend(&self, out: &mut String, left_out: usize) -> f64 {
        const SIZE: f64 = 12.0;
        const ROW: f64 = 20.0;
        let mut row = Row { x: MARGIN, y: self.height + 14.0, right: self.width - MARGIN };
        let nodes = self.topology.nodes();
        for role in [Role::Router, Role::Producer, Role::Consumer] {
            let count = nodes.iter().filter(|node| node.role == role).count();
            if count > 0 {
                let text = role_name(role, count);
                let at = row.next(14.0 + width(&text, SIZE), ROW);
                shape(out, role, (at.0 + 5.0, at.1 - 4.0), 5.5, "");
                legend_text(out, (at.0 + 16.0, at.1), SIZE, &text);
            }
        }
        let links = self.topology.links().len();
        let text = format!("{links} link{}", if links == 1 { "" } else { "s" });
        let mut entries = vec![(text, None)];
        let mut shown: Vec<_> = self.rates.clone();
        // Of many rates, the legend shows only the first and the last.
        if shown.len() > 5 {
            shown =
                [self.rates.first(), self.rates.last()].into_iter().flatten().copied().collect();
        }
        entries.extend(shown.iter().filter(|_| links > 0).map(|&rate| match rate {
            Some(bps) => (short_rate(bps), Some(rate)),
            None => ("rate without bound".to_owned(), Some(rate)),
        }));
        if left_out > 0 {
            let labels = if left_out == 1 { "label" } else { "labels" };
            entries.push((format!("{left_out} link {labels} omitted for lack of space"), None));
        }
        for (text, rate) in entries {
            let sample = if rate.is_some() { 30.0 } else { 0.0 };
            let at = row.next(sample + width(&text, SIZE), ROW);
            if let Some(rate) = rate {
                let dash = if rate.is_none() && self.rates.len() > 1 { "5 3" } else { "none" };
                let _ = writeln!(
                    out,
                    "<path d=\"M{} {}h24\" stroke=\"{LINK_COLOUR}\" stroke-width=\"{}\" \
                     stroke-dasharray=\"{dash}\"/>",
                    number(at.0),
                    number(at.1 - 4.0),
                    number(self.stroke_width(rate)),
                );
            }
            legend_text(out, (at.0 + sample, at.1), SIZE, &text);
        }
        row.y + 12.0 - self.height
    }
}

/// Entries of the legend from left to right, in as many rows as needed.
struct Row {
    x: f64,
    y: f64,
    right: f64,
}

impl Row {
    fn next(&mut self, width: f64, height: f64) -> Point {
        if self.x > MARGIN && self.x + width > self.right {
            (self.x, self.y) = (MARGIN, self.y + height);
        }
        let at = (self.x, self.y);
        self.x += width + 26.0;
        at
    }
}

fn legend_text(out: &mut String, at: Point, size: f64, text: &str) {
    let (x, y) = (number(at.0), number(at.1));
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\">{}</text>", escape(text));
}

fn write_label(out: &mut String, place: &Rect, size: f64, text: &str, fill: Option<&str>) {
    let (x, middle) = place.centre();
    let fill = fill.map(|fill| format!(" fill=\"{fill}\"")).unwrap_or_default();
    // Centres text by the middle of its small letters.
    let (x, y) = (number(x), number(middle + size * 0.36));
    let size = number(size);
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{fill}>{}</text>",
        escape(text)
    );
}

fn describe_node(node: &Node) -> String {
    let mut text = format!("{} ({})", node.name, node.role.as_str());
    if let Some((x, y)) = node.position {
        let _ = write!(text, " at {x}, {y}");
    }
    for (key, value) in &node.attributes {
        let _ = write!(text, ", {key} {value}");
    }
    text
}

/// A circle for a router, a square for a producer, a triangle for a consumer.
fn shape(out: &mut String, role: Role, at: Point, radius: f64, title: &str) {
    let (x, y, fill) = (at.0, at.1, colour(role));
    let path = match role {
        Role::Router => {
            let (left, r) = (number(x - radius), number(radius));
            let across = number(2.0 * radius);
            format!("M{left} {}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0 -{across} 0z", number(y))
        }
        Role::Producer => {
            let half = radius * 0.95;
            let side = number(2.0 * half);
            format!("M{} {}h{side}v{side}h-{side}z", number(x - half), number(y - half))
        }
        Role::Consumer => {
            let (half, up) = (radius * 1.1, radius * 1.15);
            let (left, right) = (number(x - half), number(x + half));
            let (top, base) = (number(y - up), number(y + radius * 0.85));
            format!("M{left} {base}L{right} {base}L{} {top}z", number(x))
        }
    };
    let title = match title {
        "" => String::new(),
        title => format!("<title>{}</title>", escape(title)),
    };
    let _ = writeln!(out, "<path d=\"{path}\" fill=\"{fill}\">{title}</path>");
}
