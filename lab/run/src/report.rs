//! Writes the tables, the figures and the report of a folder of results.

use std::path::Path;

use weir_plot::{ClaimRow, ClaimTable, Graphic, Mark, Outcome, Report, Section, Table};
use weir_queueing::factorial::{Analysis, Effect};
use weir_scenario::Experiment;

use crate::claims::{self, ClaimResult, NOT_RUN, Verdict};
use crate::events::write_text;
use crate::figures::Drawer;
use crate::record::{RecordError, ResultFolder, Results, RunFile};
use crate::stats::Estimate;

/// Maximum rows of a table in a report; the CSV has all.
const ROWS_MAX: usize = 200;

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A figure could not be drawn or written.
    #[error(transparent)]
    Plot(#[from] weir_plot::PlotError),
}

/// The part of a report about one scenario.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioReport<'a> {
    pub experiment: &'a Experiment,
    pub results: &'a Results,
    pub run: &'a RunFile,
    pub folder: &'a ResultFolder,
}

impl ScenarioReport<'_> {
    /// Writes `metrics.csv`, `summary.csv` and the figures, and returns the section. Links are
    /// relative to `base`, the folder of the report.
    pub(crate) fn write(&self, base: &Path) -> Result<Section, ReportError> {
        let path = &self.folder.path;
        std::fs::create_dir_all(path).map_err(crate::record::file_error(path))?;
        write_text(&path.join("metrics.csv"), &self.metrics_csv())?;
        write_text(&path.join("summary.csv"), &self.summary_csv())?;
        let mut section = Section {
            heading: self.experiment.header.title.clone(),
            text: self.experiment.header.description.trim().to_owned(),
            ..Section::default()
        };
        let drawer = Drawer::new(self.experiment, self.results);
        let relative = path.strip_prefix(base).unwrap_or(path);
        for plot in &self.experiment.plots {
            let figure = drawer.figure(plot);
            let written = figure.write(&path.join("figures"), &plot.id)?;
            let link = |name: String| relative.join("figures").join(name).display().to_string();
            let caption = if plot.caption.is_empty() { &plot.title } else { &plot.caption };
            let graphic = Graphic::of(&figure, caption.as_str())
                .command(self.command())
                .files(written.names().into_iter().map(link));
            section.graphics.push(graphic);
        }
        section.tables.push(self.table());
        section.tables.extend(self.factorial_table());
        Ok(section)
    }

    /// The command that repeats the run.
    pub(crate) fn command(&self) -> String {
        let size = match self.experiment.size {
            weir_scenario::Size::Smoke => " --smoke",
            weir_scenario::Size::Full => "",
        };
        let arm = match self.run.identity.arm {
            weir_scenario::Arm::Sim => "",
            weir_scenario::Arm::Real => " --arm real",
        };
        format!("weir lab run {}{size}{arm}", self.run.reference)
    }

    /// The mean of every metric at every point.
    fn table(&self) -> Table {
        let experiment = self.experiment;
        let mut columns: Vec<String> =
            experiment.axes.iter().map(|axis| axis.label.clone()).collect();
        for metric in &experiment.metrics {
            let unit =
                if metric.unit.is_empty() { String::new() } else { format!(" [{}]", metric.unit) };
            columns.push(format!("{}{unit}", metric.id));
        }
        let row = |(index, point): (usize, &weir_scenario::Point)| {
            let labels = experiment.coordinates(point).into_iter().map(|(_, l)| l.to_owned());
            let mut row: Vec<String> = labels.collect();
            for metric in &experiment.metrics {
                let estimate = Estimate::of(&self.results.values(index, &metric.id));
                row.push(match estimate {
                    Some(estimate) => with_interval(&estimate),
                    None if metric.measure.is_measured_in(self.run.identity.arm) => "-".to_owned(),
                    None => "not measured in this arm".to_owned(),
                });
            }
            row
        };
        let rows: Vec<Vec<String>> =
            experiment.points.iter().enumerate().take(ROWS_MAX).map(row).collect();
        let mut caption =
            "Means over seeds with the half width of their 95 % confidence interval.".to_owned();
        if experiment.points.len() > ROWS_MAX {
            caption.push_str(&format!(
                " The first {ROWS_MAX} of {} points; summary.csv has all.",
                experiment.points.len()
            ));
        }
        Table { caption, columns, rows }
    }

    /// Effects and shares of variation, for factorial designs.
    fn factorial_table(&self) -> Option<Table> {
        let factorial = self.experiment.factorial.as_ref()?;
        let analyses: Vec<Analysis> = self
            .experiment
            .seeds
            .iter()
            .filter_map(|seed| claims::of_seed(self.experiment, self.results, *seed))
            .collect();
        let first = analyses.first()?;
        let estimate = |name: &str, number: fn(&Effect) -> f64| {
            let values: Vec<f64> = analyses
                .iter()
                .filter_map(|a| a.effects.iter().find(|e| e.effect == name).map(number))
                .collect();
            Estimate::of(&values)
        };
        let text =
            |estimate: Option<Estimate>| estimate.as_ref().map_or_else(String::new, with_interval);
        let mut rows: Vec<(f64, Vec<String>)> = first
            .effects
            .iter()
            .map(|effect| {
                let variation = estimate(&effect.effect, |effect| effect.variation_percent);
                let share = variation.map_or(0.0, |variation| variation.mean);
                let value = text(estimate(&effect.effect, |effect| effect.coefficient));
                (share, vec![effect.effect.clone(), value, text(variation)])
            })
            .collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        let names: Vec<String> =
            factorial.factors.iter().map(|(letter, axis)| format!("{letter} = {axis}")).collect();
        Some(Table {
            caption: format!(
                "Effects on {}{} ({}), each replication analysed on its own.",
                if factorial.is_logarithmic { "the logarithm of " } else { "" },
                factorial.response,
                names.join(", ")
            ),
            columns: vec!["Effect".into(), "Half the difference".into(), "Variation [%]".into()],
            rows: rows.into_iter().map(|(_, row)| row).collect(),
        })
    }

    /// Every number of every run.
    fn metrics_csv(&self) -> String {
        let experiment = self.experiment;
        let mut header: Vec<String> = vec!["point".into(), "seed".into()];
        header.extend(experiment.axes.iter().map(|axis| axis.id.clone()));
        header.extend(experiment.metrics.iter().map(|metric| match metric.unit.as_str() {
            "" => metric.id.clone(),
            unit => format!("{} [{unit}]", metric.id),
        }));
        let mut text = line(&header);
        for record in self.results.records.values() {
            let mut row = vec![record.point.to_string(), record.seed.to_string()];
            row.extend(record.coordinates.iter().map(|(_, label)| label.clone()));
            for metric in &experiment.metrics {
                let value = record.measured.values.get(&metric.id).copied().flatten();
                row.push(value.map_or(String::new(), |value| value.to_string()));
            }
            text.push_str(&line(&row));
        }
        text
    }

    /// Means and intervals of every metric at every point.
    fn summary_csv(&self) -> String {
        let experiment = self.experiment;
        let mut header: Vec<String> = vec!["point".into()];
        header.extend(experiment.axes.iter().map(|axis| axis.id.clone()));
        header.extend(["metric", "unit", "mean", "low", "high", "seeds"].map(String::from));
        let mut text = line(&header);
        for (index, point) in experiment.points.iter().enumerate() {
            for metric in &experiment.metrics {
                let Some(estimate) = Estimate::of(&self.results.values(index, &metric.id)) else {
                    continue;
                };
                let mut row = vec![index.to_string()];
                row.extend(
                    experiment.coordinates(point).iter().map(|(_, label)| (*label).to_owned()),
                );
                row.extend([metric.id.clone(), metric.unit.clone()]);
                row.push(estimate.mean.to_string());
                let ends = [estimate.low, estimate.high];
                row.extend(ends.map(|end| end.map_or_else(String::new, |end| end.to_string())));
                row.push(estimate.count.to_string());
                text.push_str(&line(&row));
            }
        }
        text
    }
}

fn line(fields: &[String]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| weir_plot::csv_field(field)).collect();
    format!("{}\n", fields.join(","))
}

/// The mean, with half the width of its interval if it has one.
pub fn with_interval(estimate: &Estimate) -> String {
    match estimate.half_width() {
        Some(half) => format!("{} ± {}", shown(estimate.mean), shown(half)),
        None => shown(estimate.mean),
    }
}

/// A number with four significant digits.
pub(crate) fn shown(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..9).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    format!("{value:.*}", (3 - magnitude).max(0) as usize)
}

/// The rows of the table of claims.
pub fn claim_table(claims: &[ClaimResult]) -> ClaimTable {
    let row = |claim: &ClaimResult| ClaimRow {
        id: claim.id.clone(),
        figure: claim.figure.clone(),
        metric: claim.metric.clone(),
        paper: claim.paper,
        band: claim.band,
        is_order: claim.is_order,
        is_run: claim.cause != NOT_RUN,
        measured: claim.measured,
        interval: claim.interval,
        unit: String::new(),
        outcome: outcome(claim.verdict),
        note: claim.note.clone(),
        cause: claim.cause.clone(),
    };
    ClaimTable {
        rows: claims.iter().map(row).collect(),
        outcomes: Verdict::ALL.map(outcome).into(),
    }
}

fn outcome(verdict: Verdict) -> Outcome {
    let mark = match verdict {
        Verdict::Reproduced => Mark::Tick,
        Verdict::Better => Mark::Up,
        Verdict::Differs => Mark::Cross,
        Verdict::NotMeasured => Mark::None,
    };
    Outcome { words: verdict.words().to_owned(), mark }
}

/// The head of a report about these runs.
pub(crate) fn report_head(title: &str, command: &str, parts: &[ScenarioReport<'_>]) -> Report {
    let mut seeds: Vec<u64> =
        parts.iter().flat_map(|part| part.experiment.seeds.iter().copied()).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let mut arms: Vec<&str> = parts.iter().map(|part| part.run.identity.arm.noun()).collect();
    arms.sort_unstable();
    arms.dedup();
    let mut warnings = Vec::new();
    for part in parts {
        let wanted = part.experiment.points.len() * part.experiment.seeds.len();
        let there = part.results.records.len();
        if there < wanted {
            warnings.push(format!(
                "{}: {there} of {wanted} runs are complete; figures and claims cover only these.",
                part.experiment.header.id
            ));
        }
        warnings.extend(unsettled_warning(part));
        if part.experiment.size == weir_scenario::Size::Smoke {
            warnings.push(format!(
                "{}: a smoke run, shorter and smaller than the full one.",
                part.experiment.header.id
            ));
        }
    }
    let run = parts.first().map(|part| part.run);
    Report {
        title: title.to_owned(),
        command: command.to_owned(),
        seeds,
        commit: run.map_or_else(String::new, |run| run.identity.commit.clone()),
        date: run.map(|run| run.date.clone()),
        duration_s: Some(parts.iter().map(|part| part.run.elapsed_s).sum()),
        arm: arms.join(", "),
        machine: run.map_or_else(String::new, |run| run.machine.clone()),
        warnings,
        facts: parts.iter().flat_map(facts).collect(),
        ..Report::default()
    }
}

/// Names the points at which round-trip times grew until the end in most runs.
fn unsettled_warning(part: &ScenarioReport<'_>) -> Option<String> {
    let experiment = part.experiment;
    let names: Vec<String> = (0..experiment.points.len())
        .filter(|point| {
            let settled: Vec<bool> = part
                .results
                .of_point(*point)
                .filter_map(|record| Some(record.measured.settled?.is_settled))
                .collect();
            // More than half of the runs of this point did not settle.
            settled.iter().filter(|is_settled| !**is_settled).count() * 2 > settled.len()
        })
        .map(|point| {
            let coordinates = experiment.coordinates(&experiment.points[point]);
            let words = coordinates.iter().map(|(axis, label)| format!("{axis} {label}"));
            words.collect::<Vec<_>>().join(", ")
        })
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: round-trip times grew until the end (overload), so their mean depends on the \
             run's length: {}.",
            experiment.header.id,
            names.join("; ")
        )
    })
}

/// How much the simulator did.
fn facts(part: &ScenarioReport<'_>) -> Vec<(String, String)> {
    let simulated = || part.results.records.values().filter_map(|r| r.simulated.as_ref());
    if simulated().next().is_none() {
        return Vec::new();
    }
    let hops: u64 = simulated().map(|s| s.packet_hops).sum();
    let virtual_s: f64 = simulated().map(|s| s.virtual_ns as f64 / 1e9).sum();
    let id = &part.experiment.header.id;
    vec![(
        format!("Simulated ({id})"),
        format!(
            "{} runs, {} virtual seconds, {} packet hops",
            part.results.records.len(),
            shown(virtual_s),
            hops
        ),
    )]
}
