//! Maps values to positions: ranges, ticks, and units with a suitable SI prefix.

use crate::figure::{HUGE, drawable};
use crate::{Axis, Scale};

/// A range narrower than this fraction of its values counts as one value.
const NARROW: f64 = 1e-9;

/// A tick: its value and its label (empty for a minor tick).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// An axis fitted to data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FittedAxis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) log: bool,
    /// Label and unit as written at the axis.
    pub(crate) title: String,
    pub(crate) ticks: Vec<Tick>,
    /// How values are written next to it.
    pub(crate) values: Values,
}

/// How values are written, so that they look like the ticks of their axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// Divided by this power of ten, followed by this text.
    Scaled(i32, &'static str),
    /// With this unit, prefixed for each value.
    WithUnit(String),
}

impl FittedAxis {
    /// The position of `value`: 0 at the low end and 1 at the high end. It is outside for values
    /// beyond, but never so far that a renderer fails.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            let value = value.max(1e-300);
            (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if share.is_nan() { 0.5 } else { share.clamp(-10.0, 11.0) }
    }

    /// `value` with this number of significant digits, in the axis's notation.
    pub(crate) fn shown(&self, value: f64, digits: usize) -> String {
        let decimals = digits - 1;
        let rounded = |value: f64| format!("{value:.decimals$e}").parse().unwrap_or(value);
        match &self.values {
            Values::Scaled(exponent, suffix) => {
                format!("{}{suffix}", significant(rounded(scaled(value, -exponent))))
            }
            Values::WithUnit(unit) => readable(rounded(value), unit),
        }
    }

    /// Whether `value` lies within the axis, with a tolerance for rounding.
    pub(crate) fn contains(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.share(value))
    }
}

/// Fits an axis to values. With `zero`, a linear axis includes zero; with `roomy`, it has a margin
/// beyond the data.
pub(crate) fn fit(
    axis: &Axis,
    values: impl Iterator<Item = f64>,
    zero: bool,
    roomy: bool,
    ticks: usize,
) -> FittedAxis {
    let log = axis.scale == Scale::Log;
    let mut least = f64::INFINITY;
    let mut greatest = f64::NEG_INFINITY;
    for value in values.filter(|value| drawable(*value, axis.scale)) {
        least = least.min(value);
        greatest = greatest.max(value);
    }
    let given = axis.range.filter(|(low, high)| {
        drawable(*low, axis.scale) && drawable(*high, axis.scale) && wide(*low, *high, log)
    });
    let (low, high) = match given {
        Some(range) => range,
        None if least > greatest => (if log { 1.0 } else { 0.0 }, if log { 10.0 } else { 1.0 }),
        None if log => widen_log(least, greatest, roomy),
        None => widen(least, greatest, zero || axis.from_zero, roomy),
    };
    let unit = Unit::parse(&axis.unit);
    let fitted = if log {
        fit_log(axis, &unit, low, high)
    } else {
        fit_linear(axis, &unit, low, high, ticks)
    };
    // An axis without data shows no values.
    if given.is_none() && least > greatest {
        FittedAxis { ticks: Vec::new(), ..fitted }
    } else {
        fitted
    }
}

fn wide(low: f64, high: f64, log: bool) -> bool {
    let span = if log { (high / low).ln() } else { (high - low) / low.abs().max(high.abs()) };
    span > NARROW
}

fn widen(least: f64, greatest: f64, zero: bool, roomy: bool) -> (f64, f64) {
    // An axis that would start close to zero starts at zero.
    let near = least > 0.0 && least < 0.3 * greatest;
    let low = if zero || near { least.min(0.0) } else { least };
    let high = if zero { greatest.max(0.0) } else { greatest };
    if !wide(low, high, false) {
        return match high {
            0.0 => (0.0, 1.0),
            value if value.abs() < 1e-290 => (0.0, 1.0),
            value => (value - value.abs() * 0.1, value + value.abs() * 0.1),
        };
    }
    let margin = if roomy { (high - low) * 0.05 } else { 0.0 };
    let below = if low >= 0.0 && low - margin < 0.0 { 0.0 } else { low - margin };
    let above = if high <= 0.0 && high + margin > 0.0 { 0.0 } else { high + margin };
    // Zero needs no margin.
    (if low == 0.0 { 0.0 } else { below }, if high == 0.0 { 0.0 } else { above })
}

fn widen_log(least: f64, greatest: f64, roomy: bool) -> (f64, f64) {
    if !wide(least, greatest, true) {
        return ((least / 3.0).max(1e-300), (greatest * 3.0).min(HUGE));
    }
    let margin = if roomy { (greatest / least).powf(0.04) } else { 1.0 };
    ((least / margin).max(1e-300), (greatest * margin).min(HUGE))
}

/// A parsed unit.
struct Unit<'a> {
    name: &'a str,
    /// The unit without its prefix, if it takes prefixes.
    base: Option<&'a str>,
    /// Power of ten of its own prefix.
    exponent: i32,
}

const PREFIXES: [(&str, i32); 10] = [
    ("p", -12),
    ("n", -9),
    ("u", -6),
    ("µ", -6),
    ("m", -3),
    ("k", 3),
    ("K", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
];
const BASES: [&str; 8] = ["s", "bit/s", "bps", "B", "B/s", "bit", "Hz", "packets/s"];

impl<'a> Unit<'a> {
    fn parse(name: &'a str) -> Unit<'a> {
        let name = name.trim();
        if BASES.contains(&name) && name != "packets/s" {
            return Unit { name, base: Some(name), exponent: 0 };
        }
        for (prefix, exponent) in PREFIXES {
            if let Some(base) = name.strip_prefix(prefix)
                && BASES.contains(&base)
                && base != "packets/s"
            {
                return Unit { name, base: Some(base), exponent };
            }
        }
        Unit { name, base: None, exponent: 0 }
    }

    fn title(&self, label: &str, exponent: i32) -> String {
        let unit = match (self.base, exponent) {
            (Some(base), exponent) => format!("{}{base}", prefix(exponent)),
            (None, 0) => self.name.to_owned(),
            (None, exponent) if self.name.is_empty() => format!("×10{}", superscript(exponent)),
            (None, exponent) => format!("×10{} {}", superscript(exponent), self.name),
        };
        match (label.is_empty(), unit.is_empty()) {
            (_, true) => label.to_owned(),
            (true, false) => unit,
            (false, false) => format!("{label} ({unit})"),
        }
    }

    /// The prefix for the largest value, as an exponent that is a multiple of three.
    fn fitting(&self, largest: f64) -> i32 {
        if largest <= 0.0 {
            return self.base.map_or(0, |_| self.exponent);
        }
        let order = largest.log10().floor() as i32;
        if let Some(base) = self.base {
            // Seconds have prefixes only below 1 and other units only above, as is usual.
            let greatest = if base == "s" { 0 } else { 12 };
            let least = if base == "s" { -12 } else { 0 };
            return ((order + self.exponent).div_euclid(3) * 3).clamp(least, greatest);
        }
        if !(-3..=12).contains(&order) { order.div_euclid(3) * 3 } else { 0 }
    }
}

fn prefix(exponent: i32) -> &'static str {
    match exponent {
        -12 => "p",
        -9 => "n",
        -6 => "µ",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        _ => "",
    }
}

/// An exponent in superscript digits.
pub(crate) fn superscript(exponent: i32) -> String {
    exponent
        .to_string()
        .chars()
        .map(|digit| match digit {
            '-' => '⁻',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or(0)).unwrap_or('⁰'),
        })
        .collect()
}

fn fit_linear(axis: &Axis, unit: &Unit<'_>, low: f64, high: f64, wanted: usize) -> FittedAxis {
    let largest = low.abs().max(high.abs());
    let exponent = unit.fitting(largest);
    let shift = exponent - unit.exponent;
    let step = nice_step((high - low) / wanted.max(1) as f64);
    // Plain numbers are labelled in thousands or millions: 15k reads better than 15000.
    let (suffix, thousands) = match largest {
        _ if unit.base.is_some() || exponent != 0 => ("", 0),
        l if l >= 2e9 => ("G", 9),
        l if l >= 2e6 => ("M", 6),
        l if l >= 1e4 => ("k", 3),
        _ => ("", 0),
    };
    // If the data ends just below a tick, the axis extends to it.
    let high = match (high / step).ceil() * step {
        next if axis.range.is_none() && next - high < 0.05 * step => next,
        _ => high,
    };
    let first = (low / step - 1e-6).ceil();
    let count = ((high / step + 1e-6).floor() - first).clamp(0.0, 40.0) as usize;
    let ticks = (0..=count)
        .map(|index| {
            let steps = first + index as f64;
            let value = steps * step;
            let shown = scaled(value, -(shift + thousands));
            let decimals = decimals_of(scaled(step, -(shift + thousands)));
            let text = if steps == 0.0 {
                "0".to_owned()
            } else {
                format!("{shown:.decimals$}{suffix}").replace('-', "−")
            };
            Tick { value, label: text }
        })
        .collect();
    let values = Values::Scaled(shift + thousands, suffix);
    FittedAxis { low, high, log: false, title: unit.title(&axis.label, exponent), ticks, values }
}

fn scaled(value: f64, exponent: i32) -> f64 {
    if exponent < 0 { value / 10f64.powi(-exponent) } else { value * 10f64.powi(exponent) }
}

fn decimals_of(step: f64) -> usize {
    let mut decimals = 0;
    let mut rest = step.abs();
    while decimals < 9 && (rest - rest.round()).abs() > 1e-6 * rest.max(1e-9) {
        rest *= 10.0;
        decimals += 1;
    }
    decimals
}

/// The step at or above `rough` that is 1, 2, 2.5 or 5 times a power of ten.
fn nice_step(rough: f64) -> f64 {
    if !(rough > 0.0 && rough.is_finite()) {
        return 1.0;
    }
    let power = 10f64.powf(rough.log10().floor());
    if power <= 0.0 {
        return rough;
    }
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

fn fit_log(axis: &Axis, unit: &Unit<'_>, low: f64, high: f64) -> FittedAxis {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let decades = high.log10() - low.log10();
    let inside = |value: f64| value >= low * (1.0 - 1e-9) && value <= high * (1.0 + 1e-9);
    let stride = ((decades / 8.0).ceil() as i32).max(1);
    let powers = (first..=last).filter(|p| inside(10f64.powi(*p))).count();
    let labelled: &[u32] = match (powers, decades) {
        (_, decades) if decades > 2.2 => &[1],
        (_, decades) if decades > 1.2 => &[1, 3],
        (_, decades) if decades > 0.55 => &[1, 2, 5],
        _ => &[],
    };
    if labelled.is_empty() {
        // Powers of ten are too far apart for so short a range.
        let linear = fit_linear(axis, unit, low, high, 5);
        return FittedAxis { log: true, ..linear };
    }
    let labels = LogLabels::for_range(unit, first, last);
    let mut ticks = Vec::new();
    for power in first..=last {
        for digit in 1..=9u32 {
            let value = f64::from(digit) * 10f64.powi(power);
            let major = labelled.contains(&digit) && power.rem_euclid(stride) == 0;
            // Minor ticks would be too dense over many decades.
            if !inside(value) || (!major && (decades > 8.0 || stride > 1) && digit != 1) {
                continue;
            }
            let label = if major { labels.label(digit, power) } else { String::new() };
            ticks.push(Tick { value, label });
        }
    }
    // Tick labels have the prefixed unit, so the axis has the plain one.
    let title = match unit.base {
        Some(base) => Unit { name: base, base: None, exponent: 0 }.title(&axis.label, 0),
        None => unit.title(&axis.label, 0),
    };
    let values = match unit.base {
        Some(_) => Values::WithUnit(axis.unit.clone()),
        None => Values::Scaled(0, ""),
    };
    FittedAxis { low, high, log: true, title, ticks, values }
}

/// The notation of decades, the same for a whole axis.
enum LogLabels<'a> {
    Prefixed(&'a Unit<'a>),
    /// `thousands`: 1k instead of 1000, because 10k follows.
    Plain {
        thousands: bool,
    },
    /// Powers of ten, with the exponent of the unit's own prefix added.
    Powers(i32),
}

impl<'a> LogLabels<'a> {
    fn for_range(unit: &'a Unit<'a>, first: i32, last: i32) -> LogLabels<'a> {
        let (low, high) = (first + unit.exponent, last + unit.exponent);
        match unit.base {
            Some(base) if low >= -12 && high <= if base == "s" { 4 } else { 15 } => {
                LogLabels::Prefixed(unit)
            }
            None if first >= -3 && last <= 12 => LogLabels::Plain { thousands: last > 4 },
            _ => LogLabels::Powers(unit.exponent),
        }
    }

    fn label(&self, digit: u32, power: i32) -> String {
        match self {
            LogLabels::Prefixed(unit) => {
                let power = power + unit.exponent;
                let base = unit.base.unwrap_or("");
                let least = if base == "s" { -12 } else { 0 };
                let greatest = if base == "s" { 0 } else { 12 };
                let thousands = (power.div_euclid(3) * 3).clamp(least, greatest);
                let value = f64::from(digit) * 10f64.powi(power - thousands);
                let value =
                    if power < thousands { format!("{value:.3}") } else { value.to_string() };
                let value = trimmed(&value);
                format!("{value} {}{base}", prefix(thousands))
            }
            LogLabels::Plain { thousands: true } if power >= 3 => {
                let thousands = power.div_euclid(3) * 3;
                let value = f64::from(digit) * 10f64.powi(power - thousands);
                format!("{value}{}", prefix(thousands))
            }
            LogLabels::Plain { .. } if power < 0 => {
                format!(
                    "{:.*}",
                    power.unsigned_abs() as usize,
                    f64::from(digit) * 10f64.powi(power)
                )
            }
            LogLabels::Plain { .. } => (f64::from(digit) * 10f64.powi(power)).to_string(),
            LogLabels::Powers(shift) if digit == 1 => format!("10{}", superscript(power + shift)),
            LogLabels::Powers(shift) => format!("{digit}·10{}", superscript(power + shift)),
        }
    }
}

fn trimmed(value: &str) -> &str {
    if value.contains('.') { value.trim_end_matches('0').trim_end_matches('.') } else { value }
}

/// A value for a reader: three or four significant digits and the unit.
pub fn readable(value: f64, unit: &str) -> String {
    if value.is_nan() {
        return "not a number".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".to_owned() } else { "−∞".to_owned() };
    }
    let parsed = Unit::parse(unit);
    let (shown, unit) = match parsed.base {
        Some(base) if value != 0.0 => {
            let exponent = parsed.fitting(value.abs());
            (scaled(value, parsed.exponent - exponent), format!("{}{base}", prefix(exponent)))
        }
        _ => (value, parsed.name.to_owned()),
    };
    let text = significant(shown);
    if unit.is_empty() { text } else { format!("{text} {unit}") }
}

/// Four significant digits; powers of ten for very large and very small values.
pub(crate) fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let order = value.abs().log10().floor() as i32;
    let text = if (-4..=8).contains(&order) {
        let decimals = (3 - order).max(0) as usize;
        trimmed(&format!("{value:.decimals$}")).to_owned()
    } else {
        let power = format!("{value:.3e}");
        let (mantissa, exponent) = power.split_once('e').unwrap_or((&power, "0"));
        let exponent = exponent.parse().unwrap_or(0);
        format!("{}·10{}", trimmed(mantissa), superscript(exponent))
    };
    text.replace('-', "−")
}
