//! Timestamps of certificates: `YYYYMMDDThhmmss`, UTC (NDN certificate format 2).

pub(crate) const TIMESTAMP_SIZE: usize = 15;

const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds since the Unix epoch; `None` if the timestamp is malformed or the day does not exist.
pub fn parse_timestamp(octets: &[u8]) -> Option<i64> {
    if octets.len() != TIMESTAMP_SIZE || octets[8] != b'T' {
        return None;
    }
    let number = |range: core::ops::Range<usize>| {
        octets[range].iter().try_fold(0_i64, |sum, &octet| {
            octet.is_ascii_digit().then(|| sum * 10 + i64::from(octet - b'0'))
        })
    };
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    let days = days_from_civil(year, month, day);
    // A day that does not exist, such as 30 February, converts back to another one.
    let exists = (1..=12).contains(&month) && civil_from_days(days) == (year, month, day);
    if !exists || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second)
}

/// The timestamp of `unix_s` seconds since the Unix epoch, limited to the years 0 to 9999.
pub fn format_timestamp(unix_s: i64) -> [u8; TIMESTAMP_SIZE] {
    const EARLIEST: i64 = -62_167_219_200;
    const LATEST: i64 = 253_402_300_799;
    let unix_s = unix_s.clamp(EARLIEST, LATEST);
    let (year, month, day) = civil_from_days(unix_s.div_euclid(SECONDS_PER_DAY));
    let second = unix_s.rem_euclid(SECONDS_PER_DAY);
    let mut out = *b"00000000T000000";
    let mut put = |at: usize, digits: usize, mut number: i64| {
        for position in (at..at + digits).rev() {
            out[position] = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    put(0, 4, year);
    put(4, 2, month);
    put(6, 2, day);
    put(9, 2, second / 3600);
    put(11, 2, second / 60 % 60);
    put(13, 2, second % 60);
    out
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Inside the function, years start in
/// March, so the leap day is the last day of a year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_agree_with_known_instants() {
        for (text, unix_s) in [
            (b"19700101T000000", 0),
            (b"20240229T235959", 1_709_251_199),
            (b"20261120T084652", 1_795_164_412),
            (b"99991231T235959", 253_402_300_799),
        ] {
            assert_eq!(parse_timestamp(text), Some(unix_s));
            assert_eq!(&format_timestamp(unix_s), text);
        }
    }

    #[test]
    fn malformed_timestamps_are_refused() {
        for text in
            ["20230229T000000", "20240101 000000", "20241301T000000", "2024010T0000000", "x"]
        {
            assert_eq!(parse_timestamp(text.as_bytes()), None, "{text}");
        }
    }
}
