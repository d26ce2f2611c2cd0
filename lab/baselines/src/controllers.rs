//! Congestion controllers of the papers.
