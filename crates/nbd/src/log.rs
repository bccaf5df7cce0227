//! The server's log, in bounded quantity: clients can't fill the disk that the log is on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::link::lock;

/// A log that passes lines on while there are not too many.
pub(crate) struct Log {
    write: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    /// Lines that may come at once.
    allowed: u64,
    /// The moment up to which time was counted towards `allowed`.
    counted: Instant,
    left_out: u64,
}

impl Log {
    pub(crate) fn new(write: Box<dyn Fn(&str) + Send + Sync>) -> Log {
        Log { write, state: Mutex::new(State { allowed: BURST, counted: Instant::now(), left_out: 0 }) }
    }

    pub(crate) fn line(&self, text: &str) {
        let mut state = lock(&self.state);
        let more =
            u64::try_from(state.counted.elapsed().as_millis() / INTERVAL.as_millis()).unwrap_or(u64::MAX);
        state.allowed = state.allowed.saturating_add(more).min(BURST);
        state.counted += INTERVAL.saturating_mul(u32::try_from(more).unwrap_or(u32::MAX));
        if state.allowed == 0 {
            state.left_out += 1;
            return;
        }
        state.allowed -= 1;
        if state.left_out > 0 {
            (self.write)(&format!("{} lines were left out here", state.left_out));
            state.left_out = 0;
        }
        (self.write)(text);
    }
}

/// Lines that may come at once,
const BURST: u64 = 1000;

/// and the time after which one more may.
const INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn many_lines_are_left_out_and_counted() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&lines);
        let log = Log::new(Box::new(move |line| all.lock().unwrap().push(line.to_owned())));
        for number in 0..5000 {
            log.line(&number.to_string());
        }
        let many = lines.lock().unwrap().len() as u64;
        assert!((BURST..BURST + 300).contains(&many), "{many}");
        std::thread::sleep(2 * INTERVAL);
        log.line("last");
        let lines = lines.lock().unwrap();
        let [.., before, last] = &lines[..] else { unreachable!("there are a thousand") };
        assert!(last == "last" && before.ends_with(" lines were left out here"), "{before}, {last}");
    }
}
