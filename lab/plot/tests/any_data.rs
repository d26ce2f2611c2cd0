//! For any data, a figure is valid XML, is the same every time, and hides no value.

use proptest::prelude::*;
use weir_plot::{
    Axis, BarGroup, BoxGroup, Figure, Graphic, Heat, Interval, Join, Kind, Point, Report, Scale,
    Section, Series,
};

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e3..1e3f64,
        2 => any::<f64>(),
        1 => prop_oneof![
            Just(0.0), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY),
            Just(f64::MAX), Just(f64::MIN), Just(f64::MIN_POSITIVE), Just(5e-324), Just(1e300),
            Just(1.0), Just(1.0 + f64::EPSILON),
        ],
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,40}",
        any::<String>(),
        Just("<script>alert(1)</script> & \"x\" 'y' ]]>".to_owned()),
    ]
}

fn axis() -> impl Strategy<Value = Axis> {
    let unit = prop_oneof![Just("s"), Just("ns"), Just("bit/s"), Just("MB"), Just("%"), Just("")];
    (text(), unit, any::<bool>(), proptest::option::of((value(), value())), any::<bool>()).prop_map(
        |(label, unit, log, range, from_zero)| Axis {
            label,
            unit: unit.to_owned(),
            scale: if log { Scale::Log } else { Scale::Linear },
            range,
            from_zero,
        },
    )
}

fn point() -> impl Strategy<Value = Point> {
    (value(), value(), proptest::option::of(value()), proptest::option::of(value()))
        .prop_map(|(x, y, low, high)| Point { x, y, low, high })
}

fn series() -> impl Strategy<Value = Series> {
    let join = prop_oneof![Just(Join::Line), Just(Join::Step), Just(Join::Scatter)];
    (text(), proptest::collection::vec(point(), 0..30), join, any::<bool>(), any::<bool>())
        .prop_map(|(name, points, join, markers, band)| Series {
            name,
            points,
            join,
            markers,
            interval: if band { Interval::Band } else { Interval::Bars },
        })
}

fn kind() -> impl Strategy<Value = Kind> {
    use proptest::collection::vec;
    let names = || vec(text(), 0..5);
    prop_oneof![
        3 => vec(series(), 0..10).prop_map(Kind::Series),
        1 => (names(), vec((text(), vec(point(), 0..7)), 0..5)).prop_map(
            |(categories, groups)| Kind::Bars(weir_plot::Bars {
                categories,
                groups: groups
                    .into_iter()
                    .map(|(name, values)| BarGroup { name, values })
                    .collect(),
            })
        ),
        1 => (names(), vec((text(), vec(vec(value(), 0..12), 0..7)), 0..4)).prop_map(
            |(categories, groups)| Kind::Boxes(weir_plot::Boxes {
                categories,
                groups: groups
                    .into_iter()
                    .map(|(name, samples)| BoxGroup { name, samples })
                    .collect(),
            })
        ),
        1 => (names(), names(), vec(vec(value(), 0..6), 0..6), axis()).prop_map(
            |(columns, rows, values, bar)| Kind::Heat(Heat { columns, rows, values, bar })
        ),
    ]
}

fn figure() -> impl Strategy<Value = Figure> {
    let references = proptest::collection::vec((text(), value(), any::<bool>()), 0..3);
    (text(), text(), axis(), axis(), kind(), references).prop_map(
        |(title, subtitle, x, y, kind, references)| Figure {
            title,
            subtitle,
            x,
            y,
            kind,
            references: references
                .into_iter()
                .map(|(name, value, vertical)| weir_plot::Reference { name, value, vertical })
                .collect(),
        },
    )
}

/// Every coordinate is a number in a range that renderers handle.
fn check(svg: &str) -> Result<(), TestCaseError> {
    let document = roxmltree::Document::parse(svg)
        .map_err(|error| TestCaseError::fail(format!("{error}: {svg}")))?;
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        for attribute in node.attributes() {
            let numbers = match attribute.name() {
                "d" | "viewBox" => attribute.value().to_owned(),
                "x" | "y" | "width" | "height" | "stroke-width" | "font-size" => {
                    attribute.value().to_owned()
                }
                _ => continue,
            };
            for word in numbers.split(|c: char| c.is_whitespace() || "MLZaA".contains(c)) {
                let number: f64 =
                    if word.is_empty() { 0.0 } else { word.parse().unwrap_or(f64::NAN) };
                prop_assert!(number.abs() < 1e5, "{}={numbers}", attribute.name());
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_figure_is_drawn(figure in figure()) {
        let svg = figure.to_svg();
        check(&svg)?;
        prop_assert_eq!(svg, figure.to_svg());
        prop_assert!(!figure.to_csv().is_empty());
    }

    #[test]
    fn any_panels_are_drawn(
        figures in proptest::collection::vec(figure(), 0..5),
        columns in 0usize..9,
    ) {
        check(&Figure::panels("panels", columns, figures).to_svg())?;
    }

    #[test]
    fn any_texts_stay_texts_in_a_report(figure in figure(), text in text(), heading in text()) {
        let report = Report {
            title: heading.clone(),
            command: text.clone(),
            warnings: vec![text.clone()],
            sections: vec![Section {
                heading,
                text: text.clone(),
                graphics: vec![Graphic::of(&figure, text.clone()).files([text.clone()])],
                ..Section::default()
            }],
            ..Report::default()
        };
        let html = report.to_html();
        prop_assert!(!html.contains("<script"));
        prop_assert!(html.contains("class=\"weir-figure\""), "the drawing was refused");
        prop_assert_eq!(html.matches("<figure").count(), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_figure_becomes_pixels(figure in figure()) {
        let png = figure.to_png(200).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(png.starts_with(b"\x89PNG"));
    }
}
