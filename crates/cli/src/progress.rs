//! Progress on a terminal or for programs, and the way that signals stop long work.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use casemate::blockdev::Events;
use casemate::{Advice, Error, ErrorKind};

use crate::context::Context;
use crate::signals::{self, Loop};
use crate::streams::{json, tell};

/// Time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

/// Reports how far work on one device is; ends its bar when dropped.
#[derive(Debug)]
pub struct Reporter<'a> {
    context: &'a Context,
    device: String,
    total: u64,
    done: AtomicU64,
    start: Instant,
    /// When the next report is due, in nanoseconds since `start`.
    due: Mutex<Duration>,
    kind: Kind,
    /// Signals stop the work.
    _loop: Loop,
}

#[derive(Debug)]
enum Kind {
    Bar(ProgressBar),
    Json,
    Silent,
}

impl<'a> Reporter<'a> {
    pub fn new(context: &'a Context, device: &str, total: u64, json: bool, bar: bool) -> Reporter<'a> {
        let kind = match (json, bar) {
            (true, _) => Kind::Json,
            (false, true) => Kind::Bar(new_bar(total)),
            (false, false) => Kind::Silent,
        };
        let (device, done, due) = (device.to_owned(), AtomicU64::new(0), Mutex::new(INTERVAL));
        Reporter { context, device, total, done, start: Instant::now(), due, kind, _loop: Loop::begin() }
    }

    fn report(&self, done: u64, elapsed: Duration) {
        match &self.kind {
            Kind::Bar(bar) => bar.set_position(done),
            Kind::Json => tell(json(self.json_line(done, elapsed).to_string()) + "\n"),
            Kind::Silent => {}
        }
    }

    /// Prints something without breaking the bar.
    fn beside_bar(&self, print: impl FnOnce()) {
        match &self.kind {
            Kind::Bar(bar) => bar.suspend(print),
            Kind::Json | Kind::Silent => print(),
        }
    }

    /// The fields that cryptsetup's `--progress-json` prints, all of them strings.
    fn json_line(&self, done: u64, elapsed: Duration) -> serde_json::Value {
        let speed = u128::from(done) * 1_000_000_000 / elapsed.as_nanos().max(1);
        let left = u128::from(self.total.saturating_sub(done));
        let eta = (left * elapsed.as_millis()).checked_div(done.into()).unwrap_or(0);
        serde_json::json!({
            "device": self.device,
            "device_bytes": done.to_string(),
            "device_size": self.total.to_string(),
            "speed": speed.to_string(),
            "eta_ms": eta.to_string(),
            "time_ms": elapsed.as_millis().to_string(),
        })
    }
}

impl Events for Reporter<'_> {
    fn advance(&self, bytes: u64) -> Result<(), Error> {
        if signals::is_interrupted() {
            return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let elapsed = self.start.elapsed();
        if let Ok(mut due) = self.due.try_lock()
            && elapsed >= *due
        {
            *due = elapsed + INTERVAL;
            self.report(done, elapsed);
        }
        Ok(())
    }

    fn waiting(&self, time: Duration, reason: &str) {
        self.beside_bar(|| self.context.waiting(time, reason));
    }

    fn note(&self, text: &str) {
        self.beside_bar(|| self.context.note(text));
    }

    fn advise(&self, text: &str, advice: Advice) {
        self.beside_bar(|| self.context.advise(text, advice));
    }
}

impl Drop for Reporter<'_> {
    fn drop(&mut self) {
        match &self.kind {
            Kind::Bar(bar) => bar.finish_and_clear(),
            Kind::Json => self.report(self.done.load(Ordering::Relaxed), self.start.elapsed()),
            Kind::Silent => {}
        }
    }
}

/// A bar on standard error; indicatif shows nothing where that is not a terminal.
fn new_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(
        "{wide_bar} {percent:>3}% {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}",
    );
    bar.set_style(style.expect("the template is constant"));
    bar
}
