//! The data of a figure, without its appearance.

use serde::{Deserialize, Serialize};

/// One figure: a title, two axes and the data.
///
/// Values are plain numbers in the unit of their axis. Values that are not finite are not drawn (a
/// line breaks there), but the CSV has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// One line about what the figure shows.
    pub title: String,
    /// A second line in smaller type, such as parameters and the number of seeds; may be empty.
    pub subtitle: String,
    /// Horizontal axis. Bars and boxes use only its label, and panels ignore it.
    pub x: Axis,
    /// Vertical axis; for a heat map, the rows. Panels ignore it.
    pub y: Axis,
    pub kind: Kind,
    /// Lines across the plot area, such as a bound, a paper's value or a link's capacity.
    pub references: Vec<Reference>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// Lines, steps, time series, distribution functions and scatter plots, all as series of
    /// points.
    Series(Vec<Series>),
    /// Grouped bars over categories.
    Bars(Bars),
    /// Box plots over categories.
    Boxes(Boxes),
    /// A matrix of colours.
    Heat(Heat),
    /// Several figures in a grid, labelled (a), (b), ...
    Panels(Panels),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity: `Throughput`.
    pub label: String,
    /// Its unit: `bit/s`, `s`, `ns`, `B`, `packets/s`, `%`, or empty for a plain number. Units that
    /// take SI prefixes get a suitable one (`12 Mbit/s`, `3 ms`).
    pub unit: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Smallest and largest value shown; `None` uses the data. A range that is empty, not finite,
    /// or not positive on a logarithmic axis is ignored.
    pub range: Option<(f64, f64)>,
    /// Whether a linear axis without a given range must include zero (bars always do).
    pub from_zero: bool,
}

/// How an axis maps values to positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    /// Equal steps are equal differences.
    #[default]
    Linear,
    /// Equal steps are equal ratios. Values of zero and below are not drawn, and the figure shows
    /// their number.
    Log,
}

/// Whether a value can be drawn on an axis of this scale.
pub(crate) fn drawable(value: f64, scale: Scale) -> bool {
    value.is_finite() && value.abs() < HUGE && (scale == Scale::Linear || value > 1e-300)
}

/// Values beyond this count as not finite, because their differences overflow.
pub(crate) const HUGE: f64 = 1e300;

/// A line across the plot area with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Its meaning: `paper`, `capacity`.
    pub name: String,
    /// Its position on its axis.
    pub value: f64,
    /// Vertical at `value` of the horizontal axis; otherwise horizontal.
    pub vertical: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    /// The points, in the order in which they are joined.
    pub points: Vec<Point>,
    pub join: Join,
    /// Whether each point has a marker.
    pub markers: bool,
    /// How `low` and `high` of the points are drawn.
    pub interval: Interval,
}

/// A point with an optional interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub x: f64,
    /// Vertical value, such as the mean over seeds.
    pub y: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: Option<f64>,
    /// Upper end of the 95 % confidence interval.
    pub high: Option<f64>,
}

/// How the points of a series are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Join {
    #[default]
    Line,
    /// Held until the next point, as for queue lengths and distribution functions.
    Step,
    /// Not joined.
    Scatter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interval {
    #[default]
    Bars,
    Band,
}

/// Grouped bars: each category has one bar of each group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// Names under the axis.
    pub categories: Vec<String>,
    pub groups: Vec<BarGroup>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BarGroup {
    pub name: String,
    /// A value for each category, with an optional interval. Missing ones are omitted, and `x` is
    /// ignored.
    pub values: Vec<Point>,
}

/// Box plots: quartiles, whiskers to the last sample within 1.5 interquartile ranges, and outliers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boxes {
    /// Names under the axis.
    pub categories: Vec<String>,
    pub groups: Vec<BoxGroup>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoxGroup {
    pub name: String,
    pub samples: Vec<Vec<f64>>,
}

/// A matrix of colours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heat {
    /// Names of the columns, left to right.
    pub columns: Vec<String>,
    /// Names of the rows, top to bottom.
    pub rows: Vec<String>,
    /// `values[row][column]`. Missing cells and values that are not finite are hatched.
    pub values: Vec<Vec<f64>>,
    /// The quantity and unit of the colour bar.
    pub bar: Axis,
}

fn share_colours(figures: &mut [Figure]) {
    let mut maps: Vec<&mut Heat> = Vec::new();
    for figure in figures {
        let Kind::Heat(heat) = &mut figure.kind else { return };
        maps.push(heat);
    }
    let Some(first) = maps.first().map(|heat| heat.bar.clone()) else { return };
    if first.range.is_some() || maps.iter().any(|heat| heat.bar != first) {
        return;
    }
    let values = maps.iter().flat_map(|heat| heat.values.iter().flatten().copied());
    let drawn = values.filter(|&value| drawable(value, first.scale));
    let range = drawn.map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    maps.into_iter().for_each(|heat| heat.bar.range = range);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panels {
    /// Number of columns of the grid, at least 1.
    pub columns: usize,
    pub figures: Vec<Figure>,
}

impl Axis {
    /// A linear axis whose range comes from the data.
    pub fn linear(label: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            unit: unit.into(),
            scale: Scale::Linear,
            range: None,
            from_zero: false,
        }
    }

    /// A logarithmic axis whose range comes from the data.
    pub fn log(label: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { scale: Scale::Log, ..Axis::linear(label, unit) }
    }

    /// The same axis with a given range.
    #[must_use]
    pub fn range(mut self, least: f64, greatest: f64) -> Axis {
        self.range = Some((least, greatest));
        self
    }

    /// The same axis, including zero.
    #[must_use]
    pub fn from_zero(mut self) -> Axis {
        self.from_zero = true;
        self
    }

    /// Label and unit as a CSV heading: `Delay [ns]`.
    pub(crate) fn heading(&self) -> String {
        if self.unit.is_empty() {
            self.label.clone()
        } else {
            format!("{} [{}]", self.label, self.unit)
        }
    }
}

impl Point {
    /// A point without an interval.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, low: None, high: None }
    }

    /// A point with the ends of its interval.
    pub fn with_interval(x: f64, y: f64, low: f64, high: f64) -> Point {
        Point { x, y, low: Some(low), high: Some(high) }
    }

    /// A bar's value without an interval.
    pub fn value(y: f64) -> Point {
        Point::new(0.0, y)
    }
}

impl Series {
    /// Markers joined by lines, with intervals as bars: measurements over a parameter.
    pub fn line(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series {
            name: name.into(),
            points,
            join: Join::Line,
            markers: true,
            interval: Interval::Bars,
        }
    }

    /// A line without markers, with intervals as a band: a model or many points.
    pub fn curve(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series { markers: false, interval: Interval::Band, ..Series::line(name, points) }
    }

    /// Steps without markers: a queue length over time.
    pub fn steps(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series { join: Join::Step, ..Series::curve(name, points) }
    }

    /// Markers only.
    pub fn scatter(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series { join: Join::Scatter, ..Series::line(name, points) }
    }

    /// `(x, y)` pairs as points.
    pub fn points(pairs: &[(f64, f64)]) -> Vec<Point> {
        pairs.iter().map(|&(x, y)| Point::new(x, y)).collect()
    }
}

impl Figure {
    fn with(title: impl Into<String>, x: Axis, y: Axis, kind: Kind) -> Figure {
        Figure { title: title.into(), subtitle: String::new(), x, y, kind, references: Vec::new() }
    }

    pub fn series(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Figure {
        Figure::with(title, x, y, Kind::Series(series))
    }

    pub fn bars(
        title: impl Into<String>,
        x: Axis,
        y: Axis,
        categories: Vec<String>,
        groups: Vec<BarGroup>,
    ) -> Figure {
        Figure::with(title, x, y, Kind::Bars(Bars { categories, groups }))
    }

    pub fn boxes(
        title: impl Into<String>,
        x: Axis,
        y: Axis,
        categories: Vec<String>,
        groups: Vec<BoxGroup>,
    ) -> Figure {
        Figure::with(title, x, y, Kind::Boxes(Boxes { categories, groups }))
    }

    pub fn heat(title: impl Into<String>, x: Axis, y: Axis, heat: Heat) -> Figure {
        Figure::with(title, x, y, Kind::Heat(heat))
    }

    /// Figures in a grid of `columns`. Heat maps of the same quantity get a common colour scale,
    /// unless they have their own ranges.
    pub fn panels(title: impl Into<String>, columns: usize, mut figures: Vec<Figure>) -> Figure {
        share_colours(&mut figures);
        let none = Axis::linear("", "");
        Figure::with(title, none.clone(), none, Kind::Panels(Panels { columns, figures }))
    }

    /// The same figure with a second line under its title.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> Figure {
        self.subtitle = text.into();
        self
    }

    /// The same figure with a horizontal line at `value`.
    #[must_use]
    pub fn reference(mut self, name: impl Into<String>, value: f64) -> Figure {
        self.references.push(Reference { name: name.into(), value, vertical: false });
        self
    }

    /// The same figure with a vertical line at `value`.
    #[must_use]
    pub fn reference_x(mut self, name: impl Into<String>, value: f64) -> Figure {
        self.references.push(Reference { name: name.into(), value, vertical: true });
        self
    }
}
