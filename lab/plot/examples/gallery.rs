//! Draws a figure of every kind into a folder, to be looked at: `cargo run -p weir-plot --example
//! gallery -- target/gallery`.

use std::path::PathBuf;

use weir_plot::{
    Axis, BarGroup, BoxGroup, ClaimRow, ClaimTable, Figure, Graphic, Heat, Mark, Outcome, Point,
    Report, Section, Series, Table,
};

/// A generator of plain noise: the gallery must be the same every time.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn prefixes() -> Figure {
    let series = [
        ("decode on every compare", 0.9, 0.42),
        ("stored hash, chained table", 1.6, 0.2),
        ("ours", 2.3, 0.04),
    ];
    let series = series.into_iter().map(|(name, start, slope)| {
        let points = [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6]
            .into_iter()
            .map(|x: f64| {
                let y = start * 1e5 * (1.0 - slope * (x.log10() - 3.0) / 3.0);
                Point::with_interval(x, y, y * 0.96, y * 1.05)
            })
            .collect();
        Series::line(name, points)
    });
    Figure::series(
        "Throughput over the size of the FIB",
        Axis::log("Prefixes in the FIB", ""),
        Axis::linear("Throughput", "packets/s").from_zero(),
        series.collect(),
    )
    .subtitle("Store of 50 000 objects, names of 4 components, payload 1 KB, 5 seeds")
    .reference("paper, saturated router", 1.1e5)
}

fn delays() -> Figure {
    let mut noise = Noise(7);
    let mut series = Vec::new();
    for (index, name) in
        ["HDD, hit ratio 25 %", "SSD, hit ratio 25 %", "SSD, hit ratio 75 %"].iter().enumerate()
    {
        let scale = [8e6, 9e5, 1.4e5][index];
        let samples: Vec<f64> =
            (0..4000).map(|_| 3e4 - scale * (1.0 - noise.uniform()).ln()).collect();
        series.push(Series::distribution(*name, &samples));
    }
    Figure::series(
        "Time to the first Data",
        Axis::log("Delay", "ns"),
        Axis::linear("Share of Interests", "").range(0.0, 1.0),
        series,
    )
    .reference_x("link alone", 6e4)
}

fn queue(title: &str, rate: f64, seed: u64) -> Figure {
    let mut noise = Noise(seed);
    let mut series = Vec::new();
    for (index, (name, service)) in
        [("Content store", rate), ("PIT", 4.0), ("FIB", 4.2)].iter().enumerate()
    {
        let mut length: f64 = 0.0;
        let points = (0..6000)
            .map(|step| {
                let drift = (5.0 - service) * 0.6 + (noise.uniform() - 0.5) * 30.0;
                length = (length + drift).clamp(0.0, 2000.0 - 300.0 * index as f64);
                Point::new(f64::from(step) * 1e-3, length.round())
            })
            .collect();
        series.push(Series::steps(*name, points));
    }
    Figure::series(
        title,
        Axis::linear("Time", "s"),
        Axis::linear("Packets in queue", "").from_zero(),
        series,
    )
    .reference("capacity", 2000.0)
}

fn effects() -> Figure {
    let group = |name: &str, values: &[(f64, f64)]| BarGroup {
        name: name.to_owned(),
        values: values
            .iter()
            .map(|(y, half)| Point::with_interval(0.0, *y, y - half, y + half))
            .collect(),
    };
    Figure::bars(
        "Share of the variation in throughput that each factor explains",
        Axis::linear("Factor", ""),
        Axis::linear("Variation explained", "%"),
        names(&[
            "Store capacity",
            "Name length",
            "Payload",
            "Payload and name length",
            "Diversity",
        ]),
        vec![
            group("paper", &[(2.0, 0.5), (22.4, 1.0), (50.7, 1.2), (9.6, 0.7), (9.0, 0.9)]),
            group(
                "real processes",
                &[(1.1, 0.4), (28.0, 2.5), (44.2, 3.0), (12.0, 1.5), (7.0, 1.0)],
            ),
            group("simulator", &[(0.7, 0.1), (25.0, 0.5), (48.0, 0.8), (11.0, 0.4), (8.2, 0.2)]),
        ],
    )
}

fn completion() -> Figure {
    let mut noise = Noise(3);
    let mut group = |name: &str, shift: f64| BoxGroup {
        name: name.to_owned(),
        samples: (0..6)
            .map(|host| {
                (0..80)
                    .map(|_| {
                        (shift + 0.1 * f64::from(host)) * (1.0 + noise.uniform().powi(6) * 2.0)
                    })
                    .collect()
            })
            .collect(),
    };
    Figure::boxes(
        "Content download time at each host",
        Axis::linear("Host", ""),
        Axis::linear("Download time", "s").from_zero(),
        (1..=6).map(|host| format!("consumer-{host}")).collect(),
        vec![group("cold", 1.4), group("warm", 0.35)],
    )
}

fn map() -> Figure {
    let rows = ["0.1", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2"];
    let columns = ["1", "2", "4", "8", "16", "32", "64"];
    let values = rows
        .iter()
        .map(|a| {
            columns
                .iter()
                .map(|k| {
                    let (a, k): (f64, f64) = (a.parse().unwrap_or(0.0), k.parse().unwrap_or(0.0));
                    if a == 1.0 {
                        1.0 / (k + 1.0)
                    } else {
                        (1.0 - a) * a.powf(k) / (1.0 - a.powf(k + 1.0))
                    }
                })
                .map(|loss| if loss < 1e-9 { f64::NAN } else { loss })
                .collect()
        })
        .collect();
    Figure::heat(
        "Loss of one queue",
        Axis::linear("Threshold", "packets"),
        Axis::linear("Load per server", ""),
        Heat { columns: names(&columns), rows: names(&rows), values, bar: Axis::log("Loss", "") },
    )
}

fn panels() -> Figure {
    let panel = |title: &str, scale: f64| {
        let curve = |name: &str, power: f64| {
            let points = (1..=40)
                .map(|i| {
                    let x = f64::from(i) * 0.03;
                    Point::new(x, scale * x.powf(power) / (1.0 + x))
                })
                .collect();
            Series::curve(name, points)
        };
        let dots = Series::scatter(
            "simulation",
            (1..=8)
                .map(|i| {
                    let x = f64::from(i) * 0.15;
                    let y = scale * x.powf(2.0) / (1.0 + x);
                    Point::with_interval(x, y * 1.02, y * 0.93, y * 1.09)
                })
                .collect(),
        );
        Figure::series(
            title,
            Axis::linear("Load per server", ""),
            Axis::linear("Packets in system", ""),
            vec![curve("1 queue", 1.0), curve("2 queues", 1.5), curve("3 queues", 2.0), dots],
        )
    };
    Figure::panels(
        "Packets in the system of N queues with bypass",
        2,
        vec![
            panel("threshold 1", 2.0),
            panel("threshold 2", 5.0),
            panel("threshold 8", 22.0),
            panel("threshold 64", 210.0),
        ],
    )
    .subtitle("Curves: model; points: simulator with 95 % confidence intervals")
}

fn awkward() -> Figure {
    let axis = || Axis::linear("x", "");
    let of = |title: &str, x: Axis, y: Axis, points: &[(f64, f64)]| {
        Figure::series(title, x, y, vec![Series::line("series", Series::points(points))])
    };
    Figure::panels(
        "Data that is awkward",
        3,
        vec![
            of("empty", axis(), axis(), &[]),
            of("one point", axis(), Axis::linear("y", "s"), &[(3.0, 2.5e-5)]),
            of("all equal", axis(), axis(), &[(1.0, 4.0), (2.0, 4.0), (3.0, 4.0)]),
            of(
                "gaps",
                axis(),
                axis(),
                &[(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0), (4.0, 3.0), (5.0, f64::INFINITY)],
            ),
            of("zero on log", axis(), Axis::log("y", "B"), &[(1.0, 0.0), (2.0, 1.0), (3.0, 1e7)]),
            of("negative", axis(), axis(), &[(-2.0, -1e-6), (3.0, 2e-6), (4.0, 1e-6)]),
        ],
    )
}

fn time_share() -> Figure {
    let functions =
        ["decode", "PIT lookup", "store lookup", "FIB lookup", "encode", "system calls"];
    let runs: Vec<String> = (1..=16)
        .map(|run| format!("run {run}, payload {}", if run % 2 == 0 { "1 KB" } else { "128 B" }))
        .collect();
    let mut noise = Noise(5);
    let groups = functions
        .iter()
        .map(|name| BarGroup {
            name: (*name).to_owned(),
            values: runs.iter().map(|_| Point::value(8.0 + 8.0 * noise.uniform())).collect(),
        })
        .collect();
    let mut figure = Figure::bars(
        "Where the time goes, by function",
        Axis::linear("", ""),
        Axis::linear("Share of processor time", "%"),
        runs,
        groups,
    );
    if let weir_plot::Kind::Bars(bars) = &mut figure.kind {
        bars.stacked = true;
    }
    figure
}

fn many() -> Figure {
    let mut noise = Noise(11);
    let series = (0..9).map(|index| {
        let points = (0..=30)
            .map(|i| {
                let x = f64::from(i) / 30.0;
                let y = 4e7 * (1.0 - (1.0 - x).powi(index + 1)) * (1.0 + 0.02 * noise.uniform());
                Point::with_interval(x * 100.0, y, y * 0.95 - 2e5, y * 1.04 + 2e5)
            })
            .collect();
        let name = format!("{} queues, threshold {}", index + 1, 2 << index);
        if index % 2 == 0 { Series::curve(name, points) } else { Series::line(name, points) }
    });
    Figure::series(
        "Goodput over the hit ratio",
        Axis::linear("Hit ratio", "%"),
        Axis::linear("Goodput", "bit/s"),
        series.collect(),
    )
}

fn cloud() -> Figure {
    let mut noise = Noise(13);
    let mut series = Vec::new();
    for (name, shift) in [("hit", 1e5), ("miss", 3e6)] {
        let points = (0..20_000)
            .map(|_| {
                let size = 10f64.powf(2.0 + 4.0 * noise.uniform());
                Point::new(size, shift * (0.6 + noise.uniform()) + 80.0 * size)
            })
            .collect();
        series.push(Series::scatter(name, points));
    }
    Figure::series(
        "Retrieval time over object size",
        Axis::log("Object size", "B"),
        Axis::log("Retrieval time", "ns"),
        series,
    )
}

/// What can be found of a claim, in the order in which it is counted.
const OUTCOMES: [(&str, Mark); 3] =
    [("reproduced", Mark::Tick), ("differs", Mark::Cross), ("not measured", Mark::None)];

fn claims() -> ClaimTable {
    let outcomes = OUTCOMES.map(|(words, mark)| Outcome { words: words.to_owned(), mark });
    let claim = |id: &str, figure: &str, metric: &str, values: (f64, Option<f64>), unit: &str| {
        let (paper, measured) = values;
        let near = measured.is_some_and(|value| (value / paper - 1.0).abs() < 0.1);
        ClaimRow {
            id: id.to_owned(),
            figure: figure.to_owned(),
            metric: metric.to_owned(),
            paper: Some(paper),
            measured,
            band: [paper * 0.9, paper * 1.1],
            is_order: false,
            is_run: true,
            interval: measured.map(|value| [value * 0.97, value * 1.04]),
            unit: unit.to_owned(),
            outcome: match measured {
                Some(_) if near => outcomes[0].clone(),
                Some(_) => outcomes[1].clone(),
                None => outcomes[2].clone(),
            },
            note: "within 10 %, an invented rule for <invented> data".to_owned(),
            cause: String::new(),
        }
    };
    let halves = "throughput when names are decoded on compare";
    let rows = vec![
        claim("payload", "Table 6", "variation explained by payload", (50.7, Some(48.0)), "%"),
        claim("decode-halves", "Section 5.2", halves, (0.5, Some(0.71)), ""),
        claim("full", "Fig. 2", "time until queue is full", (2.1e9, Some(2.04e9)), "ns"),
        claim("power", "Fig. 7", "power drawn", (31.0, None), "W"),
    ];
    ClaimTable { rows, outcomes: outcomes.into() }
}

fn runs() -> Table {
    Table {
        caption: "The first runs".to_owned(),
        columns: names(&["Run", "Store", "Payload", "Throughput (packets/s)", "Remark"]),
        rows: (1..=6)
            .map(|run| {
                let throughput = (104_233 - run * 613).to_string();
                [&run.to_string(), "10 K", "128 B", &throughput, "invented"]
                    .map(str::to_owned)
                    .to_vec()
            })
            .collect(),
    }
}

fn report(written: Vec<(String, Figure)>) -> Report {
    let graphics = written
        .into_iter()
        .map(|(stem, figure)| {
            Graphic::of(&figure, format!("{}.", figure.title))
                .command(format!("weir lab run gallery.toml --out {stem}"))
                .files(["csv", "svg", "png"].map(|end| format!("{stem}.{end}")))
        })
        .collect();
    let text = "One router forwards for **8 producers and 8 consumers**; its `CPU` is full.\n\n\
                - each run lasts 10 s\n- the first second is left out\n\n\
                See [the paper](https://example.org/paper).";
    Report {
        title: "Paper ccnx-measurement, reproduced".to_owned(),
        subtitle: "A gallery of invented data: nothing here was measured.".to_owned(),
        command: "weir lab reproduce ccnx-measurement --seed 1 --out results".to_owned(),
        seeds: vec![1, 2, 3, 4, 5],
        commit: "0ff263b".to_owned(),
        date: None,
        duration_s: Some(754.2),
        arm: "simulator".to_owned(),
        machine: "2 cores, 24 GiB, Linux 6.1".to_owned(),
        claims: claims(),
        sections: vec![Section {
            heading: "What was done".to_owned(),
            text: text.to_owned(),
            graphics,
            tables: vec![runs()],
        }],
        warnings: vec!["A smoke run: sizes are a tenth of the paper's.".to_owned()],
        facts: vec![("Events".to_owned(), "12 402 118".to_owned())],
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: gallery FOLDER")?);
    let fig2 = Figure::panels(
        "Lengths of the queues of store, PIT and FIB",
        2,
        vec![queue("SSD store, 4.7 kpps", 4.7, 1), queue("HDD store, 414 pps", 0.4, 2)],
    );
    let all = [
        ("prefixes", prefixes()),
        ("delays", delays()),
        ("queues", fig2),
        ("effects", effects()),
        ("completion", completion()),
        ("map", map()),
        ("panels", panels()),
        ("time_share", time_share()),
        ("many", many()),
        ("cloud", cloud()),
        ("awkward", awkward()),
    ];
    let mut written = Vec::new();
    for (stem, figure) in all {
        figure.write(&folder, stem)?;
        written.push((stem.to_owned(), figure));
    }
    let report = report(written);
    std::fs::write(folder.join("report.html"), report.to_html())?;
    print!("{}", report.claims.to_text());
    Ok(())
}
