//! The board: the few figures that matter, beside those of the last record and beside limits
//! measured in the same run.
//!
//! `cargo run --release -p weir-benches --bin board` runs the measurements as processes of their
//! own, one after the other, each built first if it has changed, and writes `benches/records/`. A
//! run that measures only some parts (`--only exchange,unix`) adds to the record of the same commit
//! and machine.

mod limits;
mod machine;
mod parts;
mod programs;
mod record;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use limits::Limits;
use parts::{BoardConfig, PARTS};
use programs::Programs;
use record::{PartRecord, Record, Records};

#[derive(Parser)]
struct Args {
    /// Measures these parts alone.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer rounds: a minute or two. The record says so, and keeps what it has with all rounds.
    #[arg(long)]
    quick: bool,
    /// Compares with this record, not with the last one of each part.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// File for the disk engine and fio, on a file system whose speed does not swing; without it,
    /// disks are not measured.
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Folder of the records.
    #[arg(long, value_name = "FOLDER")]
    records: Option<PathBuf>,
    /// Says what there is to measure, and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.list {
        PARTS.iter().for_each(|part| println!("{:12} {}", part.name, part.about));
        return Ok(());
    }
    for name in &args.only {
        let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        ensure!(names.contains(&name.as_str()), "--only {name}: there are {}", names.join(", "));
    }
    let folder = args.records.clone().unwrap_or_else(|| machine::repository().join(RECORDS));
    let mut records = Records::read(&folder)?;
    let compared = args.compare.as_deref().map(Record::read).transpose()?;
    let mut record = records.take_record(machine::state()?, machine::Machine::here()?);
    let programs = Programs::new()?;
    let limits = Limits::measure(&programs)?;
    let setting = BoardConfig { is_quick: args.quick, disk: args.disk.clone(), programs, limits };
    let limits = setting.limits.figures();
    table::heading(&record);
    table::limits(&limits);
    for part in PARTS {
        if !args.only.is_empty() && !args.only.iter().any(|name| name == part.name) {
            continue;
        }
        if args.quick && record.is_full(part.name) {
            println!("{}: kept, it is in the record with all rounds", part.name);
            continue;
        }
        let mut runs = parts::Runs::new(&setting);
        let figures = (part.measure)(&mut runs).with_context(|| format!("part {}", part.name))?;
        if figures.is_empty() {
            continue;
        }
        let part_record = PartRecord::new(runs.commands, args.quick, figures, limits.clone());
        record.add(part.name, part_record)?;
        table::part(part.name, &record, compared.as_ref(), &records);
        // Written as it grows: what a later part breaks off, this one has not lost.
        record.write(&folder)?;
    }
    // A part that is kept or cannot be measured here has written nothing.
    ensure!(!record.parts.is_empty(), "nothing was measured");
    println!("\nwritten: {}", record.write(&folder)?.display());
    Ok(())
}

/// Where records are, from the root of the repository.
const RECORDS: &str = "benches/records";
