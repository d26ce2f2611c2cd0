//! Helpers shared by the measurements.
