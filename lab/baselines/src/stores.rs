//! Stores of the papers.
