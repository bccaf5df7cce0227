//! Points in time, and how tar streams write them.

/// A point in time: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 10^9.
    pub nanoseconds: u32,
}

/// Largest exponent that is read: floating-point numbers have none beyond.
const MOST_SHIFT: i16 = 400;

impl Time {
    /// The time as decimal seconds; a fraction counts away from zero before 1970, and from below in the value.
    pub fn to_decimal(self) -> String {
        let (sign, seconds, nanoseconds) = match self {
            Time { seconds: ..0, nanoseconds: 1.. } => {
                ("-", (self.seconds + 1).unsigned_abs(), 1_000_000_000 - self.nanoseconds)
            }
            Time { seconds: ..0, .. } => ("-", self.seconds.unsigned_abs(), 0),
            _ => ("", self.seconds.unsigned_abs(), self.nanoseconds),
        };
        let text = format!("{sign}{seconds}.{nanoseconds:09}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    /// The time of decimal seconds, with an exponent or without, as Python writes them; digits behind the ninth are left out.
    pub fn from_decimal(text: &str) -> Option<Time> {
        let (sign, text) = match text.strip_prefix('-') {
            Some(text) => (-1, text),
            None => (1, text),
        };
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty()
            || ![whole, fraction].iter().all(|part| part.bytes().all(|digit| digit.is_ascii_digit()))
        {
            return None;
        }
        let exponent: i16 =
            exponent.parse().ok().filter(|exponent| (-MOST_SHIFT..=MOST_SHIFT).contains(exponent))?;
        let shift = usize::from(exponent.unsigned_abs());
        let (whole, fraction) = match exponent {
            0 => (whole.to_owned(), fraction.to_owned()),
            ..0 => {
                let digits = format!("{}{whole}", "0".repeat(shift));
                let (whole, behind) = digits.split_at(digits.len() - shift);
                (format!("0{whole}"), format!("{behind}{fraction}"))
            }
            _ => {
                let digits = format!("{fraction}{}", "0".repeat(shift));
                let (before, fraction) = digits.split_at(shift);
                (format!("{whole}{before}"), fraction.to_owned())
            }
        };
        let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let seconds: i64 = whole.parse().ok()?;
        let nanoseconds: u32 = digits.parse().ok()?;
        Some(match (sign, nanoseconds) {
            (1, _) => Time { seconds, nanoseconds },
            (_, 0) => Time { seconds: -seconds, nanoseconds },
            _ => Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decimals() {
        for (text, seconds, nanoseconds) in
            [("5.25", 5, 250_000_000), ("-0.25", -1, 750_000_000), ("-3", -3, 0), ("100", 100, 0)]
        {
            let time = Time { seconds, nanoseconds };
            assert_eq!(time.to_decimal(), text);
            assert_eq!(Time::from_decimal(text), Some(time));
        }
        for (text, seconds, nanoseconds) in [
            ("1e-09", 0, 1),
            ("-1e-09", -1, 999_999_999),
            ("1.5e-05", 0, 15_000),
            ("12.5E1", 125, 0),
            ("123.456e-2", 1, 234_560_000),
            ("1.7e+09", 1_700_000_000, 0),
            ("1e-400", 0, 0),
        ] {
            assert_eq!(Time::from_decimal(text), Some(Time { seconds, nanoseconds }), "{text}");
        }
        let cut = Time { seconds: 7, nanoseconds: 123_456_789 };
        assert_eq!(Time::from_decimal("7.1234567899"), Some(cut));
        assert_eq!(Time { seconds: i64::MIN, nanoseconds: 0 }.to_decimal(), "-9223372036854775808");
        for wrong in
            ["", "x", "--1", "+1", "1.x", "99999999999999999999", "1e", "e5", "1e99", "1e401", "1e1.5"]
        {
            assert_eq!(Time::from_decimal(wrong), None, "{wrong}");
        }
    }
}
