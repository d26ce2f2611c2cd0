//! Records of the board: one file for each state of the source and kind of machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, SourceState, load, now};

/// The figures of one state of the source on one machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) state: SourceState,
    /// When its first part was measured: UTC, `YYYYMMDDThhmmss`.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) parts: BTreeMap<String, PartRecord>,
}

/// The figures of one part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    /// When it was measured: UTC, `YYYYMMDDThhmmss`.
    pub(crate) date: String,
    pub(crate) commands: Vec<String>,
    /// Average number of runnable processes in the last minute, including its own.
    pub(crate) load: Option<f64>,
    /// Whether it had fewer rounds.
    pub(crate) is_quick: bool,
    pub(crate) figures: Vec<Figure>,
    /// Machine limits of the same run, from which the limits of the figures are computed.
    #[serde(default)]
    pub(crate) machine_limits: Vec<Figure>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
    /// Limit on this machine, computed from measurements of the same run.
    pub(crate) limit: Option<f64>,
}

impl Figure {
    pub(crate) fn new(name: &str, unit: &str, value: f64) -> Self {
        Self { name: name.into(), unit: unit.into(), value, limit: None }
    }

    pub(crate) fn with_limit(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }
}

impl PartRecord {
    pub(crate) fn new(
        commands: Vec<String>,
        is_quick: bool,
        figures: Vec<Figure>,
        machine_limits: Vec<Figure>,
    ) -> Self {
        Self { date: now(), commands, load: load(), is_quick, figures, machine_limits }
    }
}

impl Record {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let context = || format!("{}: no record of the board", path.display());
        let text = std::fs::read_to_string(path).with_context(context)?;
        serde_json::from_str(&text).with_context(context)
    }

    /// Whether this part was measured with all rounds, so that a quick measurement must not replace
    /// it.
    pub(crate) fn is_full(&self, name: &str) -> bool {
        self.parts.get(name).is_some_and(|part| !part.is_quick)
    }

    /// Adds a part. Replaces an earlier measurement, but never one with all rounds by a quick one.
    pub(crate) fn add(&mut self, name: &str, part: PartRecord) -> Result<()> {
        if part.is_quick && self.is_full(name) {
            bail!("part {name} is in the record with all rounds: a quick one does not replace it");
        }
        self.parts.insert(name.into(), part);
        Ok(())
    }

    /// Writes the record into `folder` atomically, and returns the file.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let SourceState { commit, changes, program } = &self.state;
        let mut name = format!("{}-{commit}", self.date);
        for (word, identity) in [("changed", changes), ("program", program)] {
            name.extend(identity.iter().map(|identity| format!("-{word}-{identity}")));
        }
        let path = folder.join(format!("{name}.json"));
        let partial = path.with_extension("part");
        let context = || format!("cannot write {}", path.display());
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&partial, text).with_context(context)?;
        std::fs::rename(&partial, &path).with_context(context)?;
        Ok(path)
    }
}

/// The existing records, oldest first.
pub(crate) struct Records(Vec<Record>);

impl Records {
    /// Reads the records in `folder`, which need not exist.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut records = Vec::new();
        if folder.is_dir() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "json") {
                    records.push(Record::read(&path)?);
                }
            }
        }
        records.sort_by(|a: &Record, b| a.date.cmp(&b.date));
        Ok(Self(records))
    }

    /// Removes and returns the record of this state and machine, to continue it, or creates one.
    pub(crate) fn take_record(&mut self, state: SourceState, machine: Machine) -> Record {
        let is_it = |record: &Record| record.state == state && record.machine == machine;
        match self.0.iter().position(is_it) {
            Some(index) => self.0.remove(index),
            None => Record { state, date: now(), machine, parts: BTreeMap::new() },
        }
    }

    /// The last record with this part from this kind of machine.
    pub(crate) fn last_with(&self, part: &str, machine: &Machine) -> Option<&Record> {
        let is_it =
            |record: &&Record| record.machine == *machine && record.parts.contains_key(part);
        self.0.iter().rev().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cores: usize) -> Machine {
        Machine { processor: "one".into(), cores, memory_gib: 24, kernel: "6".into() }
    }

    fn part_record(figures: Vec<Figure>, is_quick: bool) -> PartRecord {
        let machine_limits = vec![Figure::new("copy 8000 octets", "us", 1.0)];
        PartRecord::new(vec!["it --json".into()], is_quick, figures, machine_limits)
    }

    fn record(date: &str, commit: &str, cores: usize, part: &str) -> Record {
        let state = SourceState { commit: commit.into(), changes: None, program: None };
        let figures = vec![Figure::new("it", "us", 2.5).with_limit(1.0)];
        let parts = BTreeMap::from([(part.to_owned(), part_record(figures, false))]);
        Record { state, date: date.into(), machine: machine(cores), parts }
    }

    #[test]
    fn record_round_trips_and_grows() {
        let folder = tempfile::tempdir().expect("a folder");
        let written = record("20261126T120000", "aaaa", 2, "unix");
        written.write(folder.path()).expect("it is written");
        let mut records = Records::read(folder.path()).expect("they are read");
        let mut again = records.take_record(written.state.clone(), machine(2));
        assert_eq!(again.date, written.date);
        assert_eq!(again.parts["unix"].figures, written.parts["unix"].figures);
        assert_eq!(again.parts["unix"].machine_limits, written.parts["unix"].machine_limits);
        again.add("disk", written.parts["unix"].clone()).expect("there was none");
        again.write(folder.path()).expect("it is written");
        let records = Records::read(folder.path()).expect("they are read");
        assert_eq!(records.0.len(), 1, "it is the same file");
        assert_eq!(records.0[0].parts.keys().collect::<Vec<_>>(), ["disk", "unix"]);
    }

    #[test]
    fn each_state_and_machine_has_record() {
        let mut records = Records(vec![record("20261126T120000", "aaaa", 2, "unix")]);
        let state = SourceState { commit: "aaaa".into(), changes: None, program: None };
        let mut is_new = |state: &SourceState, cores| {
            records.take_record(state.clone(), machine(cores)).parts.is_empty()
        };
        let other = |word: &str| Some(word.to_owned());
        assert!(is_new(&SourceState { commit: "bbbb".into(), ..state.clone() }, 2));
        assert!(is_new(&SourceState { changes: other("cc"), ..state.clone() }, 2));
        assert!(is_new(&SourceState { program: other("dd"), ..state.clone() }, 2));
        assert!(is_new(&state, 4));
        assert!(!is_new(&state, 2));
    }

    #[test]
    fn compares_with_last_record_of_part() {
        let records = Records(vec![
            record("20261126T120000", "aaaa", 2, "unix"),
            record("20261126T130000", "bbbb", 2, "unix"),
            record("20261126T140000", "cccc", 4, "unix"),
            record("20261126T150000", "dddd", 2, "disk"),
        ]);
        let commit = |part, cores| {
            records.last_with(part, &machine(cores)).map(|record| record.state.commit.as_str())
        };
        assert_eq!(commit("unix", 2), Some("bbbb"));
        assert_eq!(commit("unix", 4), Some("cccc"));
        assert_eq!(commit("disk", 4), None, "of another kind of machine");
        assert_eq!(commit("simulator", 2), None);
    }

    #[test]
    fn quick_replaces_only_quick() {
        let figure = |value| vec![Figure::new("it", "us", value)];
        let mut record = record("20261126T120000", "aaaa", 2, "unix");
        let value = |record: &Record, part: &str| record.parts[part].figures[0].value;
        assert!(record.add("unix", part_record(figure(9.0), true)).is_err());
        assert_eq!(value(&record, "unix"), 2.5);
        record.add("unix", part_record(figure(3.0), false)).expect("all rounds");
        assert_eq!(value(&record, "unix"), 3.0);
        for (quick, figure) in [(true, figure(4.0)), (true, figure(5.0)), (false, figure(6.0))] {
            let expected = figure[0].value;
            record.add("disk", part_record(figure, quick)).expect("no full one is there");
            assert_eq!(value(&record, "disk"), expected);
        }
    }

    #[test]
    fn reads_missing_load_and_limits() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut written = record("20261126T120000", "aaaa", 2, "unix");
        written.parts.get_mut("unix").expect("it is there").load = None;
        let path = written.write(folder.path()).expect("it is written");
        assert_eq!(Record::read(&path).expect("it is read").parts["unix"].load, None);
        let mut json = serde_json::to_value(&written).expect("JSON");
        json["parts"]["unix"].as_object_mut().expect("a part").remove("machine_limits");
        let earlier: Record = serde_json::from_value(json).expect("it is a record");
        assert!(earlier.parts["unix"].machine_limits.is_empty());
    }
}
