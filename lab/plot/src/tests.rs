use crate::{Axis, BarGroup, Figure, Heat, Kind, PlotError, Point, Series, csv_field, svg_to_png};

fn lines() -> Figure {
    Figure::series(
        "t",
        Axis::linear("Load, offered", ""),
        Axis::log("Delay", "ns"),
        vec![
            Series::line("a \"b\"", vec![Point::with_interval(0.1, 2.5e3, 2e3, 3e3)]),
            Series::curve("c", vec![Point::new(1e-7, f64::NAN), Point::new(1.0 / 3.0, 0.0)]),
        ],
    )
}

#[test]
fn the_csv_is_the_data() {
    assert_eq!(
        lines().to_csv(),
        "series,\"Load, offered\",Delay [ns],Delay [ns] low,Delay [ns] high\n\
         \"a \"\"b\"\"\",0.1,2500,2000,3000\n\
         c,0.0000001,NaN,,\n\
         c,0.3333333333333333,0,,\n"
    );
}

#[test]
fn csv_has_points_that_decimation_drops() {
    let points: Vec<Point> =
        (0..20_000).map(|i| Point::new(f64::from(i), f64::from(i % 5))).collect();
    let axis = || Axis::linear("x", "");
    let figure = Figure::series("t", axis(), axis(), vec![Series::steps("s", points)]);
    assert_eq!(figure.to_csv().lines().count(), 20_001);
    assert!(figure.to_svg().len() < 200_000);
}

#[test]
fn bars_and_heat_maps_name_their_cells() {
    let bars = Figure::bars(
        "t",
        Axis::linear("Factor", ""),
        Axis::linear("Share", "%"),
        vec!["C".to_owned(), "B".to_owned()],
        vec![BarGroup { name: "paper".to_owned(), values: vec![Point::value(51.0)] }],
    );
    assert_eq!(
        bars.to_csv(),
        "Factor,group,Share [%],Share [%] low,Share [%] high\nC,paper,51,,\n"
    );
    let heat = Heat {
        columns: vec!["1".to_owned(), "2".to_owned()],
        rows: vec!["0.5".to_owned()],
        values: vec![vec![0.25, 0.125]],
        bar: Axis::linear("Loss", ""),
    };
    let heat = Figure::heat("t", Axis::linear("k", ""), Axis::linear("load", ""), heat);
    assert_eq!(heat.to_csv(), "load,k,Loss\n0.5,1,0.25\n0.5,2,0.125\n");
}

/// Adjacent heat maps of the same quantity use the same colours.
#[test]
fn heat_maps_of_one_quantity_share_their_colours() {
    let heat = |bar: Axis, value: f64| {
        let names = || vec!["1".to_owned(), "2".to_owned()];
        let values = vec![vec![value, 2.0 * value], vec![f64::NAN, -1.0]];
        let heat = Heat { columns: names(), rows: names(), values, bar };
        Figure::heat("t", Axis::linear("k", ""), Axis::linear("load", ""), heat)
    };
    let ranges = |figures: Vec<Figure>| -> Vec<Option<(f64, f64)>> {
        let Kind::Panels(panels) = Figure::panels("p", 2, figures).kind else { panic!() };
        let range = |figure: &Figure| match &figure.kind {
            Kind::Heat(heat) => heat.bar.range,
            _ => None,
        };
        panels.figures.iter().map(range).collect()
    };
    let (linear, log) = (Axis::linear("Loss", ""), Axis::log("Loss", ""));
    let same = |axis: &Axis| vec![heat(axis.clone(), 1.0), heat(axis.clone(), 8.0)];
    assert_eq!(ranges(same(&linear)), [Some((-1.0, 16.0)); 2]);
    assert_eq!(ranges(same(&log)), [Some((1.0, 16.0)); 2]);
    assert_eq!(ranges(vec![heat(linear.clone(), 1.0), heat(log, 1.0)]), [None; 2]);
    assert_eq!(ranges(vec![heat(linear, 1.0), lines()]), [None; 2]);
}

#[test]
fn panels_follow_each_other() {
    let csv = Figure::panels("p", 2, vec![lines(), lines()]).to_csv();
    assert!(csv.starts_with("# (a) t\nseries,"), "{csv}");
    assert!(csv.contains("\n\n# (b) t\nseries,"), "{csv}");
}

#[test]
fn figure_is_written_to_three_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("figures");
    let written = lines().write(&inner, "delay").expect("written");
    assert_eq!(written.names(), ["delay.csv", "delay.svg", "delay.png"]);
    assert_eq!(std::fs::read_to_string(&written.csv).expect("csv"), lines().to_csv());
    assert_eq!(std::fs::read_to_string(&written.svg).expect("svg"), lines().to_svg());
    let png = std::fs::read(&written.png).expect("png");
    // Width and height are in the header of a PNG.
    assert_eq!(png[16..20], 1600u32.to_be_bytes());
    let again = lines().write(&inner, "again").expect("written");
    assert_eq!(png, std::fs::read(again.png).expect("png"), "same data, same bytes");
}

#[test]
fn unwritable_folder_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let error = lines().write(&file.join("below"), "x").expect_err("no folder");
    assert!(error.to_string().contains("below"), "{error}");
}

#[test]
fn text_is_drawn_with_any_font_name() {
    let svg = |text: &str| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"80\" height=\"30\">\
             <text x=\"5\" y=\"20\" font-family=\"No Such Font\">{text}</text></svg>"
        )
    };
    let drawn = svg_to_png(&svg("node"), 80).expect("png");
    assert_ne!(drawn, svg_to_png(&svg(""), 80).expect("png"));
    assert_ne!(drawn, svg_to_png(&svg("Node"), 80).expect("png"));
}

#[test]
fn undrawable_figure_is_an_error() {
    assert!(matches!(svg_to_png("not a drawing", 100), Err(PlotError::Svg(_))));
    assert!(matches!(lines().to_png(0), Err(PlotError::Size { width: 0, .. })));
    assert!(matches!(lines().to_png(u32::MAX), Err(PlotError::Size { .. })));
}

#[test]
fn csv_fields_are_quoted_when_needed() {
    assert_eq!(csv_field("plain text"), "plain text");
    assert_eq!(csv_field("a,b"), "\"a,b\"");
    assert_eq!(csv_field("a\"b\nc"), "\"a\"\"b\nc\"");
}

#[test]
fn description_names_axes_and_series() {
    let text = lines().reference("paper", 2.1e6).description();
    assert_eq!(
        text,
        "t. Lines of Delay [ns] over Load, offered: a \"b\"; c. With lines: paper at 2.1 ms."
    );
}
