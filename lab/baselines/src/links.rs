//! Queue disciplines, shaping and marking of the papers.
