//! Prints the board as text.

use crate::record::{Figure, Record, Records};

/// Prints what was measured, on which machine, and the column headings.
pub(crate) fn heading(record: &Record) {
    let machine = &record.machine;
    println!(
        "{}{}{} on {}, {} cores, {} GiB, Linux {}",
        record.state.commit,
        record.state.changes.as_deref().map_or("", |_| " with changes"),
        record.state.program.as_deref().map_or("", |_| ", another program (WEIR_BIN),"),
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.kernel
    );
    println!(
        "\n{:55} {:>9} {:>9} {:>8} {:>9} {:>8}",
        "", "now", "before", "now/bef.", "limit", "now/lim."
    );
}

/// Prints the machine's limits. Each part also records the limits of its own run.
pub(crate) fn limits(limits: &[Figure]) {
    println!("limits");
    for limit in limits {
        println!("  {:53} {:>9}", titled(limit), number(Some(limit.value)));
    }
}

/// Prints one part of `record`, next to `compared` or the last record with this part.
pub(crate) fn part(name: &str, record: &Record, compared: Option<&Record>, records: &Records) {
    let Some(now) = record.parts.get(name) else { return };
    let earlier = compared.or_else(|| records.last_with(name, &record.machine));
    let before = earlier.and_then(|earlier| earlier.parts.get(name));
    let is_same_machine = earlier.is_some_and(|earlier| earlier.machine == record.machine);
    let load = now.load.map_or("unknown".into(), |load| format!("{load:.1}"));
    let mut remarks = vec![format!("load {load}")];
    if let (Some(earlier), Some(before)) = (earlier, before) {
        let quick = if before.is_quick { ", quick" } else { "" };
        remarks.push(format!("before: {} of {}{quick}", earlier.state.commit, before.date));
        if !is_same_machine {
            let processor = &earlier.machine.processor;
            remarks.push(format!("on another machine, {processor}: no ratio"));
        }
    }
    println!("{name} ({})", remarks.join("; "));
    for figure in &now.figures {
        let same = |other: &&Figure| other.name == figure.name && other.unit == figure.unit;
        let old = before.and_then(|before| before.figures.iter().find(same));
        println!(
            "  {:53} {:>9} {:>9} {:>8} {:>9} {:>8}",
            titled(figure),
            number(Some(figure.value)),
            number(old.map(|old| old.value)),
            ratio(figure.value, old.filter(|_| is_same_machine).map(|old| old.value)),
            number(figure.limit),
            ratio(figure.value, figure.limit),
        );
    }
}

fn titled(figure: &Figure) -> String {
    match figure.unit.as_str() {
        "" => figure.name.clone(),
        unit => format!("{}, {unit}", figure.name),
    }
}

/// Formats a number with two decimals, or fewer from 10 on.
fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn ratio(value: f64, other: Option<f64>) -> String {
    match other {
        Some(other) if other != 0.0 => format!("{:.2}", value / other),
        _ => "-".into(),
    }
}
