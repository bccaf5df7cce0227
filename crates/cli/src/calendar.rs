//! Times in UTC, as people count them.

/// A time in UTC: year, month, day, hour, minute, second.
pub fn calendar(seconds: i64) -> (i64, i64, i64, i64, i64, i64) {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years are counted from 1 March of year 0, so that leap days come last; 400 years have 146097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next_year;
    (year, month, day, rest / 3_600, rest / 60 % 60, rest % 60)
}

/// A number of seconds since 1970 as logs have it, in UTC.
pub fn utc(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = calendar(i64::try_from(seconds).unwrap_or(i64::MAX));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(calendar(0), (1970, 1, 1, 0, 0, 0));
        assert_eq!(calendar(951_782_400), (2000, 2, 29, 0, 0, 0));
        assert_eq!(calendar(-1), (1969, 12, 31, 23, 59, 59));
        assert_eq!(calendar(4_107_542_400), (2100, 3, 1, 0, 0, 0));
    }
}
