//! Draws figures from records.

use weir_plot::{Axis as PlotAxis, BarGroup, BoxGroup, Figure, Heat, Point as PlotPoint, Series};
use weir_scenario::metric::Metric;
use weir_scenario::{Axis, Cell, Experiment, Plot, PlotKind, Point};

use crate::record::{Record, Results};
use crate::stats::Estimate;

/// Maximum points of a line that is drawn with markers.
const MARKERS_MAX: usize = 40;

/// The part of an experiment that a panel, series or bar shows: the fixed points of some axes.
#[derive(Clone, Debug, Default)]
struct Selection {
    fixed: Vec<(usize, usize)>,
}

impl Selection {
    fn with(&self, axis: usize, point: usize) -> Self {
        let mut fixed = self.fixed.clone();
        fixed.push((axis, point));
        Self { fixed }
    }

    fn matches_point(&self, point: &Point) -> bool {
        self.fixed.iter().all(|(axis, value)| point.at[*axis] == *value)
    }
}

/// Draws the figures of an experiment.
pub(crate) struct Drawer<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
}

/// A quantity with its unit, scaled for the figure.
fn axis(label: &str, unit: &str, is_log: bool) -> PlotAxis {
    if is_log { PlotAxis::log(label, unit) } else { PlotAxis::linear(label, unit) }
}

impl<'a> Drawer<'a> {
    pub(crate) fn new(experiment: &'a Experiment, results: &'a Results) -> Self {
        Self { experiment, results }
    }

    pub(crate) fn figure(&self, plot: &Plot) -> Figure {
        let mut base = Selection::default();
        for (axis, label) in &plot.filter {
            if let Ok((axis, point)) = weir_scenario::find_point(&self.experiment.axes, axis, label)
            {
                base = base.with(axis, point);
            }
        }
        let panels = self.combinations(&base, &plot.panels);
        let title = if plot.title.is_empty() { &self.experiment.header.title } else { &plot.title };
        let seeds = self.experiment.seeds.len();
        let subtitle = match seeds {
            1 => format!(
                "one seed ({}), {}",
                self.experiment.seeds[0],
                self.experiment.size.as_str()
            ),
            _ => {
                let interval_note = match (plot.kind, plot.cell) {
                    (PlotKind::Heat, Cell::Mean) => "mean of",
                    (PlotKind::Heat, Cell::Min) => "the least of",
                    (PlotKind::Heat, Cell::Max) => "the greatest of",
                    _ => "mean with 95 % confidence interval of",
                };
                format!("{interval_note} {seeds} seeds, {}", self.experiment.size.as_str())
            }
        };
        if let [(_, only)] = panels.as_slice() {
            return self.panel(plot, title, only).subtitle(subtitle);
        }
        let across = plot.panels.last().and_then(|axis| self.axis_of(axis));
        let columns = across.map_or(1, |axis| axis.points.len());
        let figures = panels.iter().map(|(name, selection)| self.panel(plot, name, selection));
        Figure::panels(title.as_str(), columns, figures.collect()).subtitle(subtitle)
    }

    fn axis_of(&self, id: &str) -> Option<&'a Axis> {
        self.experiment.axes.iter().find(|axis| axis.id == id)
    }

    fn axis_index(&self, id: &str) -> Option<usize> {
        self.experiment.axes.iter().position(|axis| axis.id == id)
    }

    /// Every combination of points of the axes `ids`, each with a name. Without axes, one without a
    /// name.
    fn combinations(&self, base: &Selection, ids: &[String]) -> Vec<(String, Selection)> {
        let mut all = vec![(String::new(), base.clone())];
        for id in ids {
            let Some(index) = self.axis_index(id) else { continue };
            let axis = &self.experiment.axes[index];
            all = all
                .iter()
                .flat_map(|(name, selection)| {
                    axis.points.iter().enumerate().map(move |(at, point)| {
                        let own = point_name(axis, at, &point.label);
                        let separator = if name.is_empty() { "" } else { ", " };
                        (format!("{name}{separator}{own}"), selection.with(index, at))
                    })
                })
                .collect();
        }
        all
    }

    fn panel(&self, plot: &Plot, title: &str, selection: &Selection) -> Figure {
        let figure = match plot.kind {
            PlotKind::Bars => self.bars(plot, title, selection),
            PlotKind::Boxes => self.boxes(plot, title, selection),
            PlotKind::Heat => self.heat(plot, title, selection),
            _ if plot.x == "node" => self.bars(plot, title, selection),
            _ if self.axis_of(&plot.x).is_some_and(|axis| !axis.is_numeric()) => {
                self.bars(plot, title, selection)
            }
            _ => self.series(plot, title, selection),
        };
        plot.references.iter().fold(figure, |figure, line| match line.is_vertical {
            true => figure.reference_x(line.name.as_str(), line.value),
            false => figure.reference(line.name.as_str(), line.value),
        })
    }

    fn metric(&self, id: &str) -> Option<&'a Metric> {
        self.experiment.metrics.iter().find(|metric| metric.id == id)
    }

    fn y_axis(&self, plot: &Plot) -> PlotAxis {
        let metric = plot.y.first().and_then(|id| self.metric(id));
        if plot.kind == PlotKind::Distribution {
            return PlotAxis::linear("Share of samples", "").range(0.0, 1.0);
        }
        let label = if plot.y_label.is_empty() {
            metric.map_or("", |metric| metric.label.as_str())
        } else {
            &plot.y_label
        };
        let fitted = axis(label, metric.map_or("", |metric| metric.unit.as_str()), plot.y_log);
        match plot.y_max {
            Some(max) => fitted.range(0.0, max),
            None if plot.y_log => fitted,
            None => fitted.from_zero(),
        }
    }

    fn x_axis(&self, plot: &Plot) -> PlotAxis {
        match plot.x.as_str() {
            "time" => axis("Time", "s", plot.x_log),
            "node" => PlotAxis::linear("Node", ""),
            "value" => {
                let metric = plot.y.first().and_then(|id| self.metric(id));
                let (label, unit) = metric.map_or(("", ""), |metric| (&metric.label, &metric.unit));
                axis(label, unit, plot.x_log)
            }
            id => {
                let swept = self.axis_of(id);
                let (label, unit) = swept.map_or(("", ""), |axis| (&axis.label, &axis.unit));
                axis(label, unit, plot.x_log)
            }
        }
    }

    /// Names and selections of the series of a panel, each with its metric.
    fn lines(&self, plot: &Plot, selection: &Selection) -> Vec<(String, Selection, &'a Metric)> {
        let combinations = self.combinations(selection, &plot.series);
        let metrics: Vec<&Metric> = plot.y.iter().filter_map(|id| self.metric(id)).collect();
        let mut lines = Vec::new();
        for metric in &metrics {
            for (name, selection) in &combinations {
                let name = match (name.is_empty(), metrics.len()) {
                    (true, _) => self.metric_name(metric, &metrics),
                    (false, 1) => name.clone(),
                    (false, _) => format!("{}, {name}", self.metric_name(metric, &metrics)),
                };
                lines.push((name, selection.clone(), *metric));
            }
        }
        lines
    }

    /// The metric's label, with its statistic if another metric has the same label.
    fn metric_name(&self, metric: &Metric, others: &[&Metric]) -> String {
        use weir_scenario::metric::Statistic as S;
        let same = others.iter().filter(|other| other.label == metric.label).count();
        if same < 2 {
            return metric.label.clone();
        }
        let statistic = match metric.statistic {
            S::Mean => "mean".to_owned(),
            S::Min => "least".to_owned(),
            S::Max => "greatest".to_owned(),
            S::Last => "last".to_owned(),
            S::Count => "count".to_owned(),
            S::Percentile(percent) => format!("{percent} % percentile"),
        };
        format!("{}, {statistic}", metric.label)
    }

    /// For each seed, the mean of a number over all selected points.
    fn samples(&self, selection: &Selection, number: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
        let of_seed = |seed: &u64| {
            let numbers: Vec<f64> = self
                .points(selection)
                .filter_map(|point| number(self.results.records.get(&(point, *seed))?))
                .collect();
            let sum: f64 = numbers.iter().sum();
            (!numbers.is_empty()).then(|| sum / numbers.len() as f64)
        };
        self.experiment.seeds.iter().filter_map(of_seed).collect()
    }

    /// A number for all selected points and seeds.
    fn all_values(&self, selection: &Selection, metric: &Metric) -> impl Iterator<Item = f64> {
        let records = self.points(selection).flat_map(|point| self.results.of_point(point));
        records.filter_map(|record| record.measured.values.get(&metric.id).copied().flatten())
    }

    fn points(&self, selection: &Selection) -> impl Iterator<Item = usize> {
        let points = self.experiment.points.iter().enumerate();
        points.filter(|(_, point)| selection.matches_point(point)).map(|(index, _)| index)
    }

    fn series(&self, plot: &Plot, title: &str, selection: &Selection) -> Figure {
        let series = self.lines(plot, selection).into_iter().map(|(name, selection, metric)| {
            match plot.x.as_str() {
                "time" => self.over_time(name, &selection, metric, plot.kind),
                "value" => self.distribution(name, &selection, metric),
                axis => self.over_axis(name, &selection, metric, axis),
            }
        });
        Figure::series(title, self.x_axis(plot), self.y_axis(plot), series.collect())
    }

    fn over_axis(
        &self,
        name: String,
        selection: &Selection,
        metric: &Metric,
        axis: &str,
    ) -> Series {
        let Some(index) = self.axis_index(axis) else { return Series::line(name, Vec::new()) };
        let swept = &self.experiment.axes[index];
        let point_at = |(at, point): (usize, &weir_scenario::AxisPoint)| {
            let selection = selection.with(index, at);
            let estimate = self.estimate(&selection, metric)?;
            Some(plot_point(point.number.unwrap_or(at as f64), &estimate))
        };
        Series::line(name, swept.points.iter().enumerate().filter_map(point_at).collect())
    }

    fn estimate(&self, selection: &Selection, metric: &Metric) -> Option<Estimate> {
        let value = |record: &Record| record.measured.values.get(&metric.id).copied().flatten();
        Estimate::of(&self.samples(selection, value))
    }

    fn over_time(
        &self,
        name: String,
        selection: &Selection,
        metric: &Metric,
        kind: PlotKind,
    ) -> Series {
        let mut times: Vec<f64> = Vec::new();
        for point in self.points(selection) {
            for record in self.results.of_point(point) {
                let series = record.measured.series.get(&metric.id);
                times.extend(series.into_iter().flatten().map(|(t, _)| *t));
            }
        }
        times.sort_by(f64::total_cmp);
        times.dedup();
        let at = |t: &f64| {
            let value = |record: &Record| {
                let series = record.measured.series.get(&metric.id)?;
                let index = series.binary_search_by(|(at, _)| at.total_cmp(t)).ok()?;
                Some(series[index].1)
            };
            Estimate::of(&self.samples(selection, value)).map(|estimate| plot_point(*t, &estimate))
        };
        let points: Vec<PlotPoint> = times.iter().filter_map(at).collect();
        match kind {
            PlotKind::Steps => Series::steps(name, points),
            _ if points.len() > MARKERS_MAX => Series::curve(name, points),
            _ => Series::line(name, points),
        }
    }

    /// The mean of the distribution functions of all seeds.
    fn distribution(&self, name: String, selection: &Selection, metric: &Metric) -> Series {
        let curves: Vec<&Vec<(f64, f64)>> = self
            .points(selection)
            .flat_map(|point| self.results.of_point(point))
            .filter_map(|record| record.measured.distributions.get(&metric.id))
            .filter(|curve| !curve.is_empty())
            .collect();
        let mut values: Vec<f64> =
            curves.iter().flat_map(|curve| curve.iter().map(|(value, _)| *value)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let share = |curve: &Vec<(f64, f64)>, value: f64| {
            // A step function: the last point at or below the value counts.
            let above = curve.partition_point(|(at, _)| *at <= value);
            if above == 0 { 0.0 } else { curve[above - 1].1 }
        };
        let point_at = |value: &f64| {
            let sum: f64 = curves.iter().map(|curve| share(curve, *value)).sum();
            PlotPoint::new(*value, sum / curves.len() as f64)
        };
        Series::steps(name, values.iter().map(point_at).collect())
    }

    /// Categories of bars and boxes: the points of the axis, or the nodes.
    fn categories(&self, plot: &Plot, selection: &Selection) -> Vec<String> {
        if let Some(axis) = self.axis_of(&plot.x) {
            return axis.points.iter().map(|point| point.label.clone()).collect();
        }
        let mut names: Vec<String> = Vec::new();
        for point in self.points(selection) {
            for record in self.results.of_point(point) {
                let nodes = plot.y.iter().filter_map(|id| record.measured.nodes.get(id)).flatten();
                for (name, _) in nodes {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
            }
        }
        names
    }

    fn category_samples(
        &self,
        plot: &Plot,
        selection: &Selection,
        metric: &Metric,
        at: usize,
        name: &str,
    ) -> Vec<f64> {
        match self.axis_index(&plot.x) {
            Some(index) => self.samples(&selection.with(index, at), |record| {
                record.measured.values.get(&metric.id).copied().flatten()
            }),
            None => self.samples(selection, |record| {
                let nodes = record.measured.nodes.get(&metric.id)?;
                nodes.iter().find(|(node, _)| node == name)?.1
            }),
        }
    }

    fn bars(&self, plot: &Plot, title: &str, selection: &Selection) -> Figure {
        let categories = self.categories(plot, selection);
        let group = |(name, selection, metric): (String, Selection, &Metric)| {
            let value = |(at, name): (usize, &String)| {
                let samples = self.category_samples(plot, &selection, metric, at, name);
                Estimate::of(&samples).map_or(PlotPoint::value(f64::NAN), |e| plot_point(0.0, &e))
            };
            BarGroup { name, values: categories.iter().enumerate().map(value).collect() }
        };
        let groups = self.lines(plot, selection).into_iter().map(group).collect();
        Figure::bars(title, self.x_axis(plot), self.y_axis(plot), categories, groups)
    }

    fn boxes(&self, plot: &Plot, title: &str, selection: &Selection) -> Figure {
        let categories = self.categories(plot, selection);
        let group = |(name, selection, metric): (String, Selection, &Metric)| {
            let samples = |(at, name): (usize, &String)| {
                self.category_samples(plot, &selection, metric, at, name)
            };
            BoxGroup { name, samples: categories.iter().enumerate().map(samples).collect() }
        };
        let groups = self.lines(plot, selection).into_iter().map(group).collect();
        Figure::boxes(title, self.x_axis(plot), self.y_axis(plot), categories, groups)
    }

    fn heat(&self, plot: &Plot, title: &str, selection: &Selection) -> Figure {
        let row_axis = plot.series.first().and_then(|id| self.axis_of(id));
        let rows: Vec<String> = row_axis
            .map(|axis| axis.points.iter().map(|point| point.label.clone()).collect())
            .unwrap_or_default();
        let columns = self.categories(plot, selection);
        let metric = plot.y.first().and_then(|id| self.metric(id));
        let lines = self.combinations(selection, &plot.series);
        let value = |selection: &Selection, (at, name): (usize, &String)| {
            let Some(metric) = metric else { return f64::NAN };
            let found = match (plot.cell, self.axis_index(&plot.x)) {
                (Cell::Mean, _) | (_, None) => {
                    let samples = self.category_samples(plot, selection, metric, at, name);
                    Estimate::of(&samples).map(|estimate| estimate.mean)
                }
                (Cell::Min, Some(x)) => {
                    self.all_values(&selection.with(x, at), metric).reduce(f64::min)
                }
                (Cell::Max, Some(x)) => {
                    self.all_values(&selection.with(x, at), metric).reduce(f64::max)
                }
            };
            found.unwrap_or(f64::NAN)
        };
        let row = |(_, selection): &(String, Selection)| {
            columns.iter().enumerate().map(|column| value(selection, column)).collect()
        };
        let values: Vec<Vec<f64>> = lines.iter().map(row).collect();
        let label = row_axis.map_or("", |axis| axis.label.as_str());
        let unit = row_axis.map_or("", |axis| axis.unit.as_str());
        let bar = self.y_axis(plot);
        let heat = Heat { columns, rows, values, bar };
        Figure::heat(title, self.x_axis(plot), PlotAxis::linear(label, unit), heat)
    }
}

/// The name of an axis point among others: its label alone if that is clear.
fn point_name(axis: &Axis, _at: usize, label: &str) -> String {
    if axis.is_numeric() || label.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        format!("{} {label}", axis.label)
    } else {
        label.to_owned()
    }
}

fn plot_point(x: f64, estimate: &Estimate) -> PlotPoint {
    match estimate.low.zip(estimate.high) {
        // No measure is negative, but the interval of a few seeds can be.
        Some((low, high)) => PlotPoint::with_interval(x, estimate.mean, low.max(0.0), high),
        None => PlotPoint::new(x, estimate.mean),
    }
}
