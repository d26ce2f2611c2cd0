//! The board: the most important figures, compared with the last record and with limits that are
//! measured in the same run.
//!
//! `cargo run --release -p weir-benches --bin board` runs each measurement as a separate process,
//! built first if its source has changed, and writes `benches/records/`. A run of only some parts
//! (`--only exchange,unix`) adds to the record of the same commit and machine.

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
    /// Measures only these parts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer rounds: a minute or two. The record notes that, and keeps figures with all rounds.
    #[arg(long)]
    quick: bool,
    /// Compares with this record instead of the last one of each part.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// File for the disk engine and fio, on a file system with steady speed. Without it, disks are
    /// not measured.
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Folder of the records.
    #[arg(long, value_name = "FOLDER")]
    records: Option<PathBuf>,
    /// Lists the parts and exits.
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
    let mut record = records.take_record(machine::state()?, machine::Machine::of_this_host()?);
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
        // Written after each part, so a failure in a later part loses nothing.
        record.write(&folder)?;
    }
    // Parts that are kept, or cannot be measured on this machine, write nothing.
    ensure!(!record.parts.is_empty(), "nothing was measured");
    println!("\nwritten: {}", record.write(&folder)?.display());
    Ok(())
}

/// Folder of the records, relative to the repository's root.
const RECORDS: &str = "benches/records";
