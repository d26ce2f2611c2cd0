#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod draw;
mod figure;
mod font;
mod report;
mod table;
mod write;

pub use draw::readable;
pub use figure::{
    Axis, BarGroup, Bars, BoxGroup, Boxes, Figure, Heat, Interval, Join, Kind, Panels, Point,
    Reference, Scale, Series,
};
pub use report::{ClaimRow, ClaimTable, Graphic, Mark, Outcome, Report, Section, Table};
pub use table::csv_field;
pub use write::{PlotError, Written, svg_to_png};

#[cfg(test)]
mod tests;
