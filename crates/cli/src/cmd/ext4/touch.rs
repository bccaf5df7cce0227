//! `casemate ext4 touch`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::Time;

use super::change::{ChangeArgs, is_missing};
use crate::answer::Answer;
use crate::calendar::calendar;
use crate::context::Context;

/// Change times of files in an image; create missing files, empty.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate ext4 touch root.img --date 2020-01-31 /etc/.updated")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The files; symbolic links are followed.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Change only the time of access.
    #[arg(short)]
    accessed: bool,
    /// Change only the time of modification.
    #[arg(short)]
    modified: bool,
    /// Create no files.
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The time: a date such as 2020-01-31, with a time of day in UTC such as 2020-01-31T23:59:59, or seconds since 1970
    /// behind an @ [default: now].
    #[arg(short, long, value_name = "DATE", value_parser = date)]
    date: Option<Time>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            let time = self.date.unwrap_or_else(|| writer.time());
            let accessed = (self.accessed || !self.modified).then_some(time);
            let modified = (self.modified || !self.accessed).then_some(time);
            for path in &self.paths {
                let path = path.as_bytes();
                if self.no_create && is_missing(writer, path) {
                    continue;
                }
                self.change.make_missing(writer, path)?;
                let is_now = self.date.is_none() && accessed.is_some() && modified.is_some();
                let touched = if is_now {
                    writer.set_times_to_now(path)
                } else {
                    writer.set_times(path, accessed, modified)
                };
                self.change.place(touched)?;
            }
            Ok(())
        })
    }
}

/// A time: a date, with or without a time of day in UTC, or seconds behind an @.
pub fn date(text: &str) -> Result<Time, String> {
    let seconds = match text.strip_prefix('@') {
        Some(seconds) => seconds.parse().ok(),
        None => seconds_of(text),
    };
    let seconds = seconds
        .ok_or_else(|| "neither a date such as 2020-01-31T23:59:59 nor seconds behind an @".to_owned())?;
    Ok(Time { seconds, nanoseconds: 0 })
}

/// Seconds since 1970 of a date, with or without a time of day, in UTC.
fn seconds_of(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let numbers = |text: &str, separator: char| -> Option<Vec<i64>> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && part.len() <= 4;
        text.split(separator).map(|part| part.parse().ok().filter(|_| digits(part))).collect()
    };
    let time = time.strip_suffix('Z').unwrap_or(time);
    let (&[year, month, day], &[hour, minute, ref second @ ..]) =
        (&numbers(date, '-')?[..], &numbers(time, ':')?[..])
    else {
        return None;
    };
    let second = match second {
        [] => 0,
        [second] => *second,
        _ => return None,
    };
    // Years are counted from 1 March of year 0, so that leap days come last.
    let shifted = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * shifted.0 + shifted.0.div_euclid(4) - shifted.0.div_euclid(100)
        + shifted.0.div_euclid(400)
        + (153 * shifted.1 + 2) / 5
        + day
        - 1
        - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    // A date that is none, such as 31 February, comes back as another one.
    (calendar(seconds) == (year, month, day, hour, minute, second)).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (text, seconds) in [
            ("@7", 7),
            ("@-7", -7),
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("1969-12-31T23:59:59", -1),
            ("2020-01-01 12:30", 1_577_881_800),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(date(text).map(|time| time.seconds), Ok(seconds), "{text}");
        }
        for text in ["", "@", "now", "2020-02-30", "2020-13-01", "2020-01-01T24:00", "2020-1", "99999-01-01"]
        {
            assert!(date(text).is_err(), "{text}");
        }
    }
}
