//! Traces of requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::WorkloadError;

/// Recorded requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// `(object, segment)` in file order, for [`Popularity::Trace`](super::Popularity::Trace).
    pub requests: Arc<[(u64, u64)]>,
    /// Names of the objects: object `i` is the `i`-th distinct name in the file.
    pub names: Vec<String>,
}

impl Trace {
    /// Reads a trace from CSV text with the header `site,segment` or `name,segment`. Names contain
    /// no comma, and blank lines are ignored.
    ///
    /// # Errors
    /// The invalid line, and what to write.
    pub fn from_csv(text: &str) -> Result<Self, WorkloadError> {
        let error = |line, problem: String| WorkloadError::TraceLine { line, problem };
        let mut lines = (1..).zip(text.trim_start_matches('\u{feff}').lines());
        let header = lines.next().map_or("", |(_, line)| line.trim());
        if header != "site,segment" && header != "name,segment" {
            let problem =
                format!("the header is `{header}`; write `name,segment` or `site,segment`");
            return Err(error(1, problem));
        }
        let mut numbers: HashMap<&str, u64> = HashMap::new();
        let (mut names, mut requests) = (Vec::new(), Vec::new());
        for (number, line) in lines {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let fields = line.split_once(',').map(|(name, segment)| (name.trim(), segment.trim()));
            let Some((name, segment)) = fields.filter(|(name, _)| !name.is_empty()) else {
                let problem = format!(
                    "`{line}` is not a request; write a name, a comma and a segment number"
                );
                return Err(error(number, problem));
            };
            let Ok(segment) = segment.parse() else {
                let problem = format!(
                    "the segment `{segment}` is not a number; write one from 0 to 2^64 - 1"
                );
                return Err(error(number, problem));
            };
            let object = *numbers.entry(name).or_insert_with(|| {
                names.push(name.to_owned());
                names.len() as u64 - 1
            });
            requests.push((object, segment));
        }
        if requests.is_empty() {
            let problem = "the trace has no requests; write one below the header".to_owned();
            return Err(error(1, problem));
        }
        Ok(Self { requests: requests.into(), names })
    }

    /// The requests, but each repetition requests a different segment: the next one of the object
    /// that the trace does not request. No two requests then share an answer.
    pub fn with_repeats_apart(&self) -> Arc<[(u64, u64)]> {
        // For each object, the segment after the last one that the trace requests.
        let mut free: HashMap<u64, u64> = HashMap::new();
        for &(object, segment) in self.requests.iter() {
            let next = free.entry(object).or_default();
            *next = (*next).max(segment + 1);
        }
        let mut requested = HashSet::new();
        let apart = self.requests.iter().map(|&(object, segment)| {
            if requested.insert((object, segment)) {
                return (object, segment);
            }
            let next = free.entry(object).or_default();
            *next += 1;
            (object, *next - 1)
        });
        apart.collect()
    }
}
