use roxmltree::Document;

use super::decimate::{decimate, distinct};
use super::scale::{self, readable, significant, superscript};
use crate::{Axis, BarGroup, BoxGroup, Figure, Heat, Point, Scale, Series};

fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).expect("valid XML");
    document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text().map(str::to_owned))
        .collect()
}

fn has(svg: &str, text: &str) -> bool {
    texts(svg).iter().any(|one| one == text)
}

fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
    scale::fit(axis, values.iter().copied(), false, false, 6)
        .ticks
        .into_iter()
        .map(|tick| tick.label)
        .filter(|label| !label.is_empty())
        .collect()
}

fn title(axis: &Axis, values: &[f64]) -> String {
    scale::fit(axis, values.iter().copied(), false, false, 6).title
}

#[test]
fn a_linear_axis_takes_the_prefix_that_fits() {
    assert_eq!(title(&Axis::linear("Delay", "ns"), &[0.0, 3.4e6]), "Delay (ms)");
    assert_eq!(
        labels(&Axis::linear("Delay", "ns"), &[0.0, 3e6]),
        ["0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]
    );
    assert_eq!(title(&Axis::linear("Rate", "bit/s"), &[0.0, 4e7]), "Rate (Mbit/s)");
    assert_eq!(title(&Axis::linear("Time", "s"), &[0.0, 5000.0]), "Time (s)");
    assert_eq!(title(&Axis::linear("Size", "B"), &[0.0, 0.5]), "Size (B)");
    assert_eq!(title(&Axis::linear("Loss", "%"), &[0.0, 50.0]), "Loss (%)");
    assert_eq!(title(&Axis::linear("Loss", ""), &[0.0, 5e-6]), "Loss (×10⁻⁶)");
    assert_eq!(labels(&Axis::linear("Loss", ""), &[0.0, 4e-6]), ["0", "1", "2", "3", "4"]);
    assert_eq!(
        labels(&Axis::linear("Rate", "packets/s"), &[0.0, 4e4]),
        ["0", "10k", "20k", "30k", "40k"]
    );
    assert_eq!(labels(&Axis::linear("Change", ""), &[-2.0, 2.0]), ["−2", "−1", "0", "1", "2"]);
}

#[test]
fn a_logarithmic_axis_reads_well_over_any_span() {
    let log = |unit: &str, values: &[f64]| labels(&Axis::log("x", unit), values);
    assert_eq!(log("", &[1.0, 1e6]), ["1", "10", "100", "1k", "10k", "100k", "1M"]);
    assert_eq!(log("", &[1.0, 1e3]), ["1", "10", "100", "1000"]);
    assert_eq!(log("", &[1e-3, 1.0]), ["0.001", "0.01", "0.1", "1"]);
    assert_eq!(log("", &[1e-8, 1e-5]), ["10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵"]);
    assert_eq!(
        log("ns", &[1e3, 1e9]),
        ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
    );
    assert_eq!(log("B", &[1.0, 1e4]), ["1 B", "10 B", "100 B", "1 kB", "10 kB"]);
    assert_eq!(log("", &[1.0, 10.0]), ["1", "2", "5", "10"]);
    assert_eq!(log("", &[100.0, 130.0]).first().map(String::as_str), Some("100"));
    let wide = log("", &[1e-30, 1e30]);
    assert!((4..=10).contains(&wide.len()), "{wide:?}");
    assert_eq!(title(&Axis::log("Delay", "ns"), &[1e3, 1e9]), "Delay (s)");
}

#[test]
fn ticks_lie_where_their_labels_say() {
    for (low, high) in [(0.0, 1.0), (-7.3, 12.9), (1e-9, 3e-9), (1e6, 1.001e6), (-1e12, 1e12)] {
        let fitted = scale::fit(&Axis::linear("x", ""), [low, high].into_iter(), false, false, 6);
        assert!((3..=14).contains(&fitted.ticks.len()), "{low} {high}: {:?}", fitted.ticks);
        let mut labels: Vec<&String> = fitted.ticks.iter().map(|tick| &tick.label).collect();
        labels.dedup();
        assert_eq!(labels.len(), fitted.ticks.len(), "labels differ: {:?}", fitted.ticks);
        for tick in &fitted.ticks {
            assert!(fitted.contains(tick.value), "{tick:?}");
        }
    }
}

#[test]
fn valid_range_is_kept_invalid_ignored() {
    let fit = |axis: Axis| scale::fit(&axis, [2.0, 3.0].into_iter(), false, true, 6);
    let given = fit(Axis::linear("x", "").range(0.0, 10.0));
    assert_eq!((given.low, given.high), (0.0, 10.0));
    for (low, high) in [(1.0, 1.0), (5.0, 2.0), (f64::NAN, 2.0), (0.0, f64::INFINITY)] {
        let fitted = fit(Axis::linear("x", "").range(low, high));
        assert!(fitted.low <= 2.0 && fitted.high >= 3.0 && fitted.high < 4.0, "{fitted:?}");
    }
    assert!(fit(Axis::log("x", "").range(0.0, 10.0)).low > 0.0);
}

#[test]
fn values_read_well() {
    assert_eq!(readable(2.04e9, "ns"), "2.04 s");
    assert_eq!(readable(-1500.0, "B"), "−1.5 kB");
    assert_eq!(readable(50.7, "%"), "50.7 %");
    assert_eq!(readable(0.0, "s"), "0 s");
    assert_eq!(readable(f64::NAN, "s"), "not a number");
    assert_eq!(significant(123_456.0), "123456");
    assert_eq!(significant(1.234_56e-7), "1.235·10⁻⁷");
    assert_eq!(superscript(-120), "⁻¹²⁰");
}

fn sample() -> Figure {
    let points = |shift: f64| {
        (1..=5).map(move |x| {
            let y = shift + f64::from(x);
            Point::with_interval(f64::from(x), y, shift, shift + 9.0)
        })
    };
    Figure::series(
        "Throughput <of> one router",
        Axis::linear("Name length", "components"),
        Axis::linear("Throughput", "Mbit/s"),
        vec![
            // Bars on one, a band on the other.
            Series::line("measured & real", points(1.0).collect()),
            Series::curve("model", points(2.0).collect()),
        ],
    )
    .subtitle("five seeds")
    .reference("capacity", 12.0)
}

#[test]
fn axes_units_legend_and_notes_are_all_there() {
    let svg = sample().to_svg();
    for text in [
        "Throughput <of> one router",
        "five seeds",
        "Name length (components)",
        "Throughput (Mbit/s)",
        "measured & real",
        "model",
        "capacity",
    ] {
        assert!(has(&svg, text), "{text:?} is missing from {:?}", texts(&svg));
    }
    let all = texts(&svg).join(" ");
    assert!(all.contains("Error bars and bands are 95 %"), "{all}");
    assert!(!svg.contains(" id="), "an id would clash with those of other drawings");
}

#[test]
fn values_that_cannot_be_shown_are_counted() {
    let points = [(1.0, 0.0), (2.0, 5.0), (3.0, f64::NAN), (4.0, 500.0), (5.0, -1.0)];
    let figure = Figure::series(
        "t",
        Axis::linear("x", ""),
        Axis::log("y", "").range(1.0, 100.0),
        vec![Series::line("s", Series::points(&points))],
    );
    let all = texts(&figure.to_svg()).join(" ");
    assert!(
        all.contains(
            "Values not shown: 1 not finite; 2 not positive, on a logarithmic axis; \
             1 outside the axes."
        ),
        "{all}"
    );
}

#[test]
fn a_line_breaks_at_a_gap_and_one_point_is_seen() {
    let paths = |points: &[(f64, f64)]| {
        let axis = || Axis::linear("x", "");
        let series = Series { markers: false, ..Series::line("s", Series::points(points)) };
        let svg = Figure::series("t", axis(), axis(), vec![series]).to_svg();
        let document = Document::parse(&svg).expect("valid XML");
        let inside = document.descendants().filter(|n| n.has_tag_name("svg")).nth(1);
        inside.map_or(0, |n| n.descendants().filter(|n| n.has_tag_name("path")).count())
    };
    assert_eq!(paths(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]), 1);
    assert_eq!(paths(&[(1.0, 1.0), (2.0, 2.0), (3.0, f64::NAN), (4.0, 1.0), (5.0, 1.0)]), 2);
    assert_eq!(paths(&[(1.0, 1.0)]), 1);
}

#[test]
fn empty_figure_says_no_data() {
    for figure in [
        Figure::series("t", Axis::linear("x", ""), Axis::log("y", ""), Vec::new()),
        Figure::bars("t", Axis::linear("x", ""), Axis::linear("y", ""), Vec::new(), Vec::new()),
        Figure::boxes("t", Axis::linear("x", ""), Axis::linear("y", ""), Vec::new(), Vec::new()),
    ] {
        let svg = figure.to_svg();
        assert!(has(&svg, "no data"), "{:?}", texts(&svg));
        assert!(!has(&svg, "0") && !has(&svg, "1"), "an axis without data shows no values");
    }
}

#[test]
fn decimation_keeps_every_peak() {
    let places: Vec<(f64, f64)> = (0..100_000)
        .map(|index| {
            (f64::from(index) * 0.007, if index == 54_321 { 999.0 } else { f64::from(index % 7) })
        })
        .collect();
    let reduced = decimate(&places);
    assert!(reduced.len() <= 4 * 1401, "{}", reduced.len());
    assert!(reduced.contains(&places[54_321]));
    assert_eq!((reduced.first(), reduced.last()), (places.first(), places.last()));
    let few = &places[..40];
    assert!(decimate(few).iter().all(|place| few.contains(place)));
    let sparse: Vec<(f64, f64)> = (0..50).map(|x| (f64::from(x), 1.0)).collect();
    assert_eq!(decimate(&sparse), sparse);
    assert_eq!(distinct(&[(1.0, 1.0), (1.01, 1.0), (9.0, 1.0)]), [(1.0, 1.0), (9.0, 1.0)]);
}

#[test]
fn bars_stand_on_zero_and_name_their_categories() {
    let group = |name: &str, y: f64| BarGroup {
        name: name.to_owned(),
        values: vec![Point::value(y), Point::with_interval(0.0, y + 1.0, y, y + 2.0)],
    };
    let figure = Figure::bars(
        "t",
        Axis::linear("Factor", ""),
        Axis::linear("Share", "%"),
        vec!["payload".to_owned(), "name".to_owned()],
        vec![group("paper", 100.0), group("ours", 101.0)],
    );
    let svg = figure.to_svg();
    for text in ["payload", "name", "paper", "ours", "Factor", "Share (%)", "0", "100", "102"] {
        assert!(has(&svg, text), "{text:?} is missing from {:?}", texts(&svg));
    }
}

#[test]
fn values_are_written_as_their_axis_is_scaled() {
    let group = |values: &[f64]| BarGroup {
        name: "ours".to_owned(),
        values: values.iter().copied().map(Point::value).collect(),
    };
    let bars = |y: Axis, values: &[f64]| {
        let names = (0..values.len()).map(|at| format!("c{at}")).collect();
        Figure::bars("t", Axis::linear("x", ""), y, names, vec![group(values)]).to_svg()
    };
    let svg = bars(Axis::linear("Delay", "s"), &[0.0972, 0.2]);
    assert!(has(&svg, "Delay (ms)") && has(&svg, "97.2"), "{:?}", texts(&svg));
    let svg = bars(Axis::linear("Rate", "packets/s"), &[15_320.0, 40_000.0]);
    assert!(has(&svg, "40k") && has(&svg, "15.3k"), "{:?}", texts(&svg));
    let svg = bars(Axis::linear("Loss", ""), &[2.34e-6, 4e-6]);
    assert!(has(&svg, "Loss (×10⁻⁶)") && has(&svg, "2.34"), "{:?}", texts(&svg));
    let svg = bars(Axis::log("Delay", "s"), &[0.0972, 10.0]);
    assert!(has(&svg, "100 ms") && has(&svg, "97.2 ms"), "{:?}", texts(&svg));
    let heat = Heat {
        columns: vec!["c".to_owned(), "d".to_owned()],
        rows: vec!["r".to_owned()],
        values: vec![vec![1.5e7, 4e7]],
        bar: Axis::linear("Goodput", "bit/s"),
    };
    let svg = Figure::heat("t", Axis::linear("k", ""), Axis::linear("a", ""), heat).to_svg();
    assert!(has(&svg, "Goodput (Mbit/s)") && has(&svg, "15"), "{:?}", texts(&svg));
}

#[test]
fn quartiles_whiskers_and_outliers() {
    let samples: Vec<f64> = (1..=9).map(f64::from).chain([100.0, f64::NAN]).collect();
    let summary = super::bars::summary(&samples, Scale::Linear).expect("samples");
    assert_eq!(summary.five, [1.0, 3.25, 5.5, 7.75, 9.0]);
    assert_eq!(summary.outliers, [100.0]);
    assert!(super::bars::summary(&[f64::NAN], Scale::Linear).is_none());
    let one = super::bars::summary(&[4.0], Scale::Linear).expect("a sample");
    assert_eq!(one.five, [4.0; 5]);
    let figure = Figure::boxes(
        "t",
        Axis::linear("Host", ""),
        Axis::linear("Time", "s"),
        vec!["h1".to_owned()],
        vec![BoxGroup { name: "cold".to_owned(), samples: vec![samples] }],
    );
    assert!(has(&figure.to_svg(), "Time (s)") && has(&figure.to_svg(), "cold"));
}

#[test]
fn a_heat_map_shows_its_cells_and_its_scale() {
    let heat = Heat {
        columns: vec!["c1".to_owned(), "c2".to_owned()],
        rows: vec!["r1".to_owned()],
        values: vec![vec![0.25, f64::NAN]],
        bar: Axis::linear("Loss", "%"),
    };
    let svg = Figure::heat("t", Axis::linear("k", ""), Axis::linear("a", ""), heat).to_svg();
    for text in ["c1", "c2", "r1", "0.25", "Loss (%)", "k", "a", "Hatched cells have no value."] {
        assert!(has(&svg, text), "{text:?} is missing from {:?}", texts(&svg));
    }
}

#[test]
fn panels_share_only_equal_legends() {
    let shared = Figure::panels("all", 2, vec![sample(), sample()]).to_svg();
    let count = |svg: &str, text: &str| texts(svg).iter().filter(|one| *one == text).count();
    assert_eq!(count(&shared, "model"), 1);
    assert!(has(&shared, "(a) Throughput <of> one router"));
    assert!(has(&shared, "(b) Throughput <of> one router"));
    let mut other = sample();
    other.references.clear();
    let own = Figure::panels("all", 2, vec![sample(), other]).to_svg();
    assert_eq!(count(&own, "model"), 2);
}

#[test]
fn series_differ_without_colour() {
    use super::style::{dash, marker};
    for one in 0..24 {
        for other in 0..one {
            assert_ne!((dash(one), marker(one)), (dash(other), marker(other)), "{one} {other}");
        }
    }
}
