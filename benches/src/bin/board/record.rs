//! Records of the board: a file for each state of the source and machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, State, load, now};

/// What was measured of one state of the source on one machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) state: State,
    /// When the first of it was measured, `YYYYMMDDThhmmss` in UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) parts: BTreeMap<String, PartRecord>,
}

/// One part of the board, measured at one time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    /// When it was measured, `YYYYMMDDThhmmss` in UTC.
    pub(crate) date: String,
    /// What was run for it.
    pub(crate) commands: Vec<String>,
    /// Processes that wanted a processor in the minute before its end, its own included.
    pub(crate) load: f64,
    /// With fewer rounds.
    pub(crate) is_quick: bool,
    pub(crate) figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
    /// What this machine would allow, by limits measured in the same run.
    pub(crate) limit: Option<f64>,
}

impl Figure {
    pub(crate) fn new(name: &str, unit: &str, value: f64) -> Self {
        Self { name: name.into(), unit: unit.into(), value, limit: None }
    }

    pub(crate) fn beside(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }
}

impl PartRecord {
    pub(crate) fn new(commands: Vec<String>, is_quick: bool, figures: Vec<Figure>) -> Self {
        Self { date: now(), commands, load: load(), is_quick, figures }
    }
}

impl Record {
    /// Reads a record.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let context = || format!("{}: no record of the board", path.display());
        let text = std::fs::read_to_string(path).with_context(context)?;
        serde_json::from_str(&text).with_context(context)
    }

    /// Adds a part, in place of an earlier measurement of it.
    pub(crate) fn add(&mut self, name: &str, part: PartRecord) {
        self.parts.insert(name.into(), part);
    }

    /// Writes it into `folder`, whole or not at all; the file.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let State { commit, changes, program } = &self.state;
        let mut name = format!("{}-{commit}", self.date);
        for (word, identity) in [("changed", changes), ("program", program)] {
            name.extend(identity.iter().map(|identity| format!("-{word}-{identity}")));
        }
        let path = folder.join(format!("{name}.json"));
        let beside = path.with_extension("part");
        let context = || format!("cannot write {}", path.display());
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&beside, text).with_context(context)?;
        std::fs::rename(&beside, &path).with_context(context)?;
        Ok(path)
    }
}

/// The records that there are, from the oldest to the newest.
pub(crate) struct Records(Vec<Record>);

impl Records {
    /// Reads those in `folder`, which need not be there.
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

    /// Takes out the record of this state and machine, to be gone on with, or begins one.
    pub(crate) fn take_of(&mut self, state: State, machine: Machine) -> Record {
        let is_it = |record: &Record| record.state == state && record.machine == machine;
        match self.0.iter().position(is_it) {
            Some(index) => self.0.remove(index),
            None => Record { state, date: now(), machine, parts: BTreeMap::new() },
        }
    }

    /// The last record with this part, of this kind of machine if there is one.
    pub(crate) fn last_with(&self, part: &str, machine: &Machine) -> Option<&Record> {
        let with = || self.0.iter().rev().filter(|record| record.parts.contains_key(part));
        with().find(|record| record.machine == *machine).or_else(|| with().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cores: usize) -> Machine {
        Machine { processor: "one".into(), cores, memory_gib: 24, kernel: "6".into() }
    }

    fn record(date: &str, commit: &str, cores: usize, part: &str) -> Record {
        let state = State { commit: commit.into(), changes: None, program: None };
        let figures = vec![Figure::new("it", "us", 2.5).beside(1.0)];
        let part_record = PartRecord::new(vec!["it --json".into()], false, figures);
        let parts = BTreeMap::from([(part.to_owned(), part_record)]);
        Record { state, date: date.into(), machine: machine(cores), parts }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written_and_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let written = record("20261126T120000", "aaaa", 2, "unix");
        written.write(folder.path()).expect("it is written");
        let mut records = Records::read(folder.path()).expect("they are read");
        let mut again = records.take_of(written.state.clone(), machine(2));
        assert_eq!(again.date, written.date);
        assert_eq!(again.parts["unix"].figures, written.parts["unix"].figures);
        again.add("disk", written.parts["unix"].clone());
        again.write(folder.path()).expect("it is written");
        let records = Records::read(folder.path()).expect("they are read");
        assert_eq!(records.0.len(), 1, "it is the same file");
        assert_eq!(records.0[0].parts.keys().collect::<Vec<_>>(), ["disk", "unix"]);
    }

    #[test]
    fn another_state_or_machine_has_a_record_of_its_own() {
        let mut records = Records(vec![record("20261126T120000", "aaaa", 2, "unix")]);
        let state = State { commit: "aaaa".into(), changes: None, program: None };
        let mut is_new =
            |state: &State, cores| records.take_of(state.clone(), machine(cores)).parts.is_empty();
        let other = |word: &str| Some(word.to_owned());
        assert!(is_new(&State { commit: "bbbb".into(), ..state.clone() }, 2));
        assert!(is_new(&State { changes: other("cc"), ..state.clone() }, 2));
        assert!(is_new(&State { program: other("dd"), ..state.clone() }, 2));
        assert!(is_new(&state, 4));
        assert!(!is_new(&state, 2));
    }

    #[test]
    fn a_part_is_compared_with_the_last_record_that_has_it() {
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
        // Of another kind of machine rather than none; the table says so.
        assert_eq!(commit("disk", 8), Some("dddd"));
        assert_eq!(commit("simulator", 2), None);
    }
}
