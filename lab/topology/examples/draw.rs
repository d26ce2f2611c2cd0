//! Draws a topology: `cargo run -p weir-topology --example draw -- NAME|FILE|GENERATOR OUT.png`,
//! where a generator is written as `kind = "tree", depth = 4, fan_out = 2`.

use std::error::Error;
use std::path::Path;

use weir_topology::{
    DrawOptions, Generator, LinkDefaults, LinkLabels, Placement, Topology, draw_svg,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, out, rest @ ..] = arguments.as_slice() else {
        return Err("draw NAME|FILE|GENERATOR OUT.svg|OUT.png [stress] [labels]".into());
    };
    let topology = if what.contains('=') {
        let table: toml::Table = toml::from_str(&format!("g = {{ {what} }}"))?;
        let generator: Generator = table["g"].clone().try_into()?;
        generator.generate(&LinkDefaults::default(), 1)?
    } else {
        Topology::open(what, Path::new("."))?
    };
    let has = |word: &str| rest.iter().any(|found| found == word);
    let options = DrawOptions {
        placement: if has("stress") { Placement::Stress } else { Placement::Auto },
        link_labels: if has("labels") { LinkLabels::Both } else { LinkLabels::None },
        ..DrawOptions::default()
    };
    let svg = draw_svg(&topology, &options);
    match out.ends_with(".png") {
        true => std::fs::write(out, weir_plot::svg_to_png(&svg, options.width)?)?,
        false => std::fs::write(out, svg)?,
    }
    Ok(())
}
