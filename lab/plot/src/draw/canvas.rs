//! Writes SVG text, element by element.
//!
//! Colours are attributes, so that the drawing needs no style sheet, and also classes, so that a
//! report can restyle it. No element has an id, because many drawings share a page.

use std::fmt::Write as _;

/// A colour, with the class that a page can restyle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    /// Class without its prefix: `f` for fill or `k` for stroke.
    pub(crate) class: &'static str,
    pub(crate) colour: &'static str,
}

/// Text and marks.
pub(crate) const INK: Ink = Ink { class: "ink", colour: "#1d2129" };
/// Secondary text.
pub(crate) const DIM: Ink = Ink { class: "dim", colour: "#59616e" };
/// Axes and ticks.
pub(crate) const AXIS: Ink = Ink { class: "axis", colour: "#7c8593" };
pub(crate) const GRID: Ink = Ink { class: "grid", colour: "#e4e7eb" };
pub(crate) const PAPER: Ink = Ink { class: "paper", colour: "#ffffff" };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The style of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type {
    pub(crate) size: f64,
    pub(crate) bold: bool,
    pub(crate) ink: Ink,
    pub(crate) anchor: Anchor,
    /// Degrees, clockwise.
    pub(crate) rotation: f64,
}

/// Regular, left-aligned text.
pub(crate) const fn text_of(size: f64, ink: Ink) -> Type {
    Type { size, bold: false, ink, anchor: Anchor::Start, rotation: 0.0 }
}

impl Type {
    pub(crate) const fn bold(self) -> Type {
        Type { bold: true, ..self }
    }

    pub(crate) const fn anchor(self, anchor: Anchor) -> Type {
        Type { anchor, ..self }
    }

    pub(crate) const fn rotated(self, rotation: f64) -> Type {
        Type { rotation, ..self }
    }
}

/// The style of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stroke {
    pub(crate) ink: Ink,
    pub(crate) width: f64,
    pub(crate) dash: &'static str,
}

/// A solid line.
pub(crate) const fn stroke(ink: Ink, width: f64) -> Stroke {
    Stroke { ink, width, dash: "" }
}

/// A rectangle, from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Canvas {
    out: String,
}

/// A length in user units. Two decimals are finer than a printer's pixel.
pub(crate) fn number(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    if !rounded.is_finite() {
        return "0".to_owned();
    }
    // Adding zero turns -0 into 0.
    format!("{}", rounded + 0.0)
}

/// Escapes text for elements and quoted attributes. Characters that XML forbids become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' | '\r' => out.push(' '),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
    out
}

impl Canvas {
    /// The whole document.
    pub(crate) fn finish(self, width: f64, height: f64, label: &str) -> String {
        let (w, h) = (number(width), number(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"weir-figure\" width=\"{w}\" \
             height=\"{h}\" viewBox=\"0 0 {w} {h}\" font-family=\"{}\" role=\"img\" \
             aria-label=\"{}\">\n{}</svg>\n",
            crate::font::FAMILY,
            escape(label),
            self.out
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "{element}");
    }

    /// A line between two points.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        self.push(format_args!(
            "<path d=\"M{} {}L{} {}\" {}/>",
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1),
            stroke_attributes(stroke)
        ));
    }

    /// An outline of path data.
    pub(crate) fn path(&mut self, data: &str, stroke: Stroke) {
        if !data.is_empty() {
            self.push(format_args!("<path d=\"{data}\" {}/>", stroke_attributes(stroke)));
        }
    }

    /// Points as path data with segments of length 0.
    pub(crate) fn dots(&mut self, data: &str, stroke: Stroke, cap: &str) {
        if !data.is_empty() {
            let look = stroke_attributes(stroke);
            self.push(format_args!("<path d=\"{data}\" stroke-linecap=\"{cap}\" {look}/>"));
        }
    }

    /// A filled shape of path data.
    pub(crate) fn shape(&mut self, data: &str, fill: Ink, opacity: f64) {
        if !data.is_empty() {
            self.push(format_args!("<path d=\"{data}\" {}/>", fill_attributes(fill, opacity)));
        }
    }

    /// A filled shape with an outline.
    pub(crate) fn outlined(&mut self, data: &str, fill: Ink, stroke: Stroke) {
        self.push(format_args!(
            "<path d=\"{data}\" class=\"f-{} k-{}\" fill=\"{}\" stroke=\"{}\" \
             stroke-width=\"{}\" stroke-linejoin=\"round\"/>",
            fill.class,
            stroke.ink.class,
            fill.colour,
            stroke.ink.colour,
            number(stroke.width)
        ));
    }

    pub(crate) fn rectangle(&mut self, area: Area, fill: Ink, opacity: f64) {
        self.push(format_args!(
            "<rect {} {}/>",
            area_attributes(area),
            fill_attributes(fill, opacity)
        ));
    }

    /// A filled rectangle in a colour that pages do not restyle.
    pub(crate) fn tile(&mut self, area: Area, colour: &str) {
        self.push(format_args!("<rect {} fill=\"{colour}\"/>", area_attributes(area)));
    }

    /// One line of text with its baseline at `position`.
    pub(crate) fn text(&mut self, position: (f64, f64), text: &str, look: Type) {
        if text.is_empty() {
            return;
        }
        let anchor = match look.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y) = (number(position.0), number(position.1));
        let rotation = if look.rotation == 0.0 {
            String::new()
        } else {
            format!(" transform=\"rotate({} {x} {y})\"", number(look.rotation))
        };
        let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
        self.push(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\"{weight}{anchor}{rotation} {}>{}</text>",
            number(look.size),
            fill_attributes(look.ink, 1.0),
            escape(text)
        ));
    }

    /// Centred text on a tile, in a colour that pages do not restyle.
    pub(crate) fn fixed_text(&mut self, position: (f64, f64), text: &str, size: f64, colour: &str) {
        self.push(format_args!(
            "<text x=\"{}\" y=\"{}\" font-size=\"{}\" \
             text-anchor=\"middle\" fill=\"{colour}\">{}</text>",
            number(position.0),
            number(position.1),
            number(size),
            escape(text)
        ));
    }

    /// Adds the content of another canvas.
    pub(crate) fn append(&mut self, other: Canvas) {
        self.out.push_str(&other.out);
    }

    /// Starts a group. `title` is its tooltip.
    pub(crate) fn open(&mut self, title: Option<&str>) {
        match title {
            Some(title) => self.push(format_args!("<g><title>{}</title>", escape(title))),
            None => self.push(format_args!("<g>")),
        }
    }

    /// Ends a group.
    pub(crate) fn close(&mut self) {
        self.push(format_args!("</g>"));
    }

    /// Starts a part that is clipped to `area`. Coordinates stay those of the page.
    pub(crate) fn open_clipped(&mut self, area: Area) {
        let Area { x, y, width, height } = area;
        let view = [x, y, width, height].map(number).join(" ");
        self.push(format_args!(
            "<svg {} viewBox=\"{view}\" overflow=\"hidden\">",
            area_attributes(area)
        ));
    }

    /// Ends a clipped part.
    pub(crate) fn close_clipped(&mut self) {
        self.push(format_args!("</svg>"));
    }
}

fn area_attributes(area: Area) -> String {
    format!(
        "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
        number(area.x),
        number(area.y),
        number(area.width.max(0.0)),
        number(area.height.max(0.0))
    )
}

fn fill_attributes(ink: Ink, opacity: f64) -> String {
    let opacity = if opacity < 1.0 {
        format!(" fill-opacity=\"{}\"", number(opacity))
    } else {
        String::new()
    };
    format!("class=\"f-{}\" fill=\"{}\"{opacity}", ink.class, ink.colour)
}

fn stroke_attributes(stroke: Stroke) -> String {
    let dash = if stroke.dash.is_empty() {
        String::new()
    } else {
        format!(" stroke-dasharray=\"{}\"", stroke.dash)
    };
    format!(
        "class=\"k-{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" \
         stroke-linejoin=\"round\"{dash}",
        stroke.ink.class,
        stroke.ink.colour,
        number(stroke.width)
    )
}

/// Path data of straight lines through points.
pub(crate) fn through(places: &[(f64, f64)]) -> String {
    let mut data = String::new();
    for (index, (x, y)) in places.iter().enumerate() {
        data.push(if index == 0 { 'M' } else { 'L' });
        let _ = write!(data, "{} {}", number(*x), number(*y));
    }
    data
}
