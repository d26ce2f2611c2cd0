//! Writes figures to files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use resvg::{tiny_skia, usvg};

use crate::Figure;

/// Maximum pixels on the longest side.
const SIDE_MAX: u32 = 8192;
/// Width of PNG files in pixels: twice the width of a report's column.
const PNG_WIDTH: u32 = 1600;

/// Why a picture was not written.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The text is not SVG.
    #[error("not a drawing: {0}")]
    Svg(String),
    /// The picture has no area, or a side of more than 8192 pixels.
    #[error("a picture of {width} x {height} pixels cannot be drawn; choose 1 to 8192 per side")]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// A file was not written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
}

/// The files of one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub svg: PathBuf,
    /// The same in pixels.
    pub png: PathBuf,
    pub csv: PathBuf,
}

impl Written {
    /// The three names without their folder, for [`crate::Graphic::files`].
    pub fn names(&self) -> Vec<String> {
        [&self.csv, &self.svg, &self.png]
            .into_iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect()
    }
}

impl Figure {
    /// The figure as SVG. Text stays text, and the file needs no others.
    pub fn to_svg(&self) -> String {
        crate::draw::svg(self)
    }

    /// The figure as a PNG of `width` pixels.
    ///
    /// # Errors
    /// The width is 0, or so large that the picture exceeds the limits of [`PlotError::Size`].
    pub fn to_png(&self, width: u32) -> Result<Vec<u8>, PlotError> {
        svg_to_png(&self.to_svg(), width)
    }

    /// All data as CSV (RFC 4180, with a heading line), not only what is drawn.
    ///
    /// Panels follow each other, each after a line `# (a) title` and with its own headings.
    pub fn to_csv(&self) -> String {
        crate::table::csv(self)
    }

    /// The figure in words: axes, series and ranges.
    pub(crate) fn description(&self) -> String {
        crate::table::description(self)
    }

    /// Writes `stem.svg`, `stem.png` and `stem.csv` to `folder`, which is created if it does not
    /// exist.
    pub fn write(&self, folder: &Path, stem: &str) -> Result<Written, PlotError> {
        let at = |end: &str| folder.join(format!("{stem}.{end}"));
        let written = Written { svg: at("svg"), png: at("png"), csv: at("csv") };
        let file = |path: &Path, bytes: &[u8]| {
            std::fs::write(path, bytes)
                .map_err(|source| PlotError::File { path: path.to_path_buf(), source })
        };
        std::fs::create_dir_all(folder)
            .map_err(|source| PlotError::File { path: folder.to_path_buf(), source })?;
        file(&written.csv, self.to_csv().as_bytes())?;
        let svg = self.to_svg();
        file(&written.svg, svg.as_bytes())?;
        file(&written.png, &svg_to_png(&svg, PNG_WIDTH)?)?;
        Ok(written)
    }
}

/// Any SVG drawing as a PNG of `width` pixels, with a white background. Text uses the font of this
/// crate, so the picture is the same on every machine.
///
/// # Errors
/// The text is not SVG, or the size is out of range.
pub fn svg_to_png(svg: &str, width: u32) -> Result<Vec<u8>, PlotError> {
    let options = usvg::Options {
        font_family: "DejaVu Sans".to_owned(),
        fontdb: fonts(),
        font_resolver: any_font(),
        ..usvg::Options::default()
    };
    let tree =
        usvg::Tree::from_str(svg, &options).map_err(|error| PlotError::Svg(error.to_string()))?;
    let size = tree.size();
    let scale = f64::from(width) / f64::from(size.width());
    let height = (f64::from(size.height()) * scale).ceil() as u32;
    let bounds = 1..=SIDE_MAX;
    if !bounds.contains(&width) || !bounds.contains(&height) {
        return Err(PlotError::Size { width, height });
    }
    let mut pixels =
        tiny_skia::Pixmap::new(width, height).ok_or(PlotError::Size { width, height })?;
    pixels.fill(tiny_skia::Color::WHITE);
    let transform = tiny_skia::Transform::from_scale(scale as f32, scale as f32);
    resvg::render(&tree, transform, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| PlotError::Svg(error.to_string()))
}

/// Only the faces that the crate includes, never those of the machine.
fn fonts() -> Arc<usvg::fontdb::Database> {
    static FONTS: OnceLock<Arc<usvg::fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_font_data(crate::font::REGULAR.to_vec());
        fonts.load_font_data(crate::font::BOLD.to_vec());
        Arc::new(fonts)
    };
    Arc::clone(FONTS.get_or_init(load))
}

/// Every font family resolves to ours: the machine's fonts are not used, and text must not vanish.
fn any_font() -> usvg::FontResolver<'static> {
    usvg::FontResolver {
        select_font: Box::new(|font, fonts| {
            fonts.query(&usvg::fontdb::Query {
                families: &[usvg::fontdb::Family::Name("DejaVu Sans")],
                weight: usvg::fontdb::Weight(font.weight()),
                ..usvg::fontdb::Query::default()
            })
        }),
        select_fallback: usvg::FontResolver::default_fallback_selector(),
    }
}
