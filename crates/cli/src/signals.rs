//! Signals that ask a command to end.
//!
//! Until a command begins what would stay unfinished, the system ends it. From then on the first signal is noted, and loops that
//! report progress, derivations of keys and waits for others stop by it. Where none of them is at work, and no change of a file in
//! its place is being made, the process ends after a moment by itself, without the files that it has begun. A later signal is not
//! waited for.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use casemate::blockdev::when_output_begins;
use casemate::stop_derivations_when;

/// The signal that came first; 0 if none has come.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Loops that are at work, which stop by themselves.
static LOOPS: AtomicUsize = AtomicUsize::new(0);

/// Whether there was such a loop: a command that changes something in its place ends as it sees fit from then on.
static HAS_LOOPED: AtomicBool = AtomicBool::new(false);

/// Whether somebody else receives the signals, as what goes on in the background does.
static HAS_RECEIVER: AtomicBool = AtomicBool::new(false);

/// Whether what goes on in the background is there for others: it has an end of its own.
static IS_UP: AtomicBool = AtomicBool::new(false);

/// The exit status of what was interrupted by nobody knows what.
const INTERRUPTED: u8 = 130;

/// A loop that asks [`is_interrupted`] while it is at work.
#[derive(Debug)]
pub struct Loop(());

impl Loop {
    /// Begins one; signals are heeded from now on.
    pub fn begin() -> Loop {
        heed();
        HAS_LOOPED.store(true, Ordering::Relaxed);
        LOOPS.fetch_add(1, Ordering::Relaxed);
        Loop(())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        LOOPS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Has signals heeded as soon as a key is derived or a file is begun that would stay unfinished.
pub fn prepare() {
    when_output_begins(heed);
    stop_derivations_when(|| {
        heed();
        is_interrupted()
    });
}

/// Whether the command was asked to end.
pub fn is_interrupted() -> bool {
    platform::look();
    let has_come = FIRST.load(Ordering::Relaxed) != 0 || platform::arrived() != 0;
    has_come && !IS_UP.load(Ordering::Relaxed)
}

/// The exit status of a command that was interrupted, as a shell says it of one that the signal has ended.
pub fn exit_status() -> u8 {
    match (FIRST.load(Ordering::Relaxed), platform::arrived()) {
        (0, 0) => INTERRUPTED,
        (0, signal) | (signal, _) => status_of(signal),
    }
}

/// Ends the process by SIGQUIT if its user has sent that. What was interrupted has said what it has left.
pub fn end_by_quit() {
    platform::end_by_quit();
}

/// The exit status of what a signal ends.
pub fn status_of(signal: i32) -> u8 {
    u8::try_from(signal).map_or(INTERRUPTED, |signal| signal.saturating_add(128))
}

/// Notes a signal; whether it is the first one.
pub fn note(signal: i32) -> bool {
    FIRST.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Leaves signals to somebody else, who [notes](note) them.
#[cfg(target_os = "linux")]
pub fn leave_to_receiver() {
    HAS_RECEIVER.store(true, Ordering::Relaxed);
    casemate::blockdev::stop_waiting_when(is_interrupted);
}

/// Has signals interrupt nothing any more: what goes on in the background is there, and ends as it has to.
#[cfg(target_os = "linux")]
pub fn is_up() {
    IS_UP.store(true, Ordering::Relaxed);
}

/// Has the first signal noted from now on, instead of ending the process.
pub fn heed() {
    if !HAS_RECEIVER.load(Ordering::Relaxed) {
        platform::heed();
    }
}

#[cfg(unix)]
mod platform {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Once, OnceLock};
    use std::thread;
    use std::time::{Duration, Instant};

    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::iterator::Signals;

    use casemate::blockdev::{Change, has_unfinished_outputs, remove_unfinished_outputs, stop_waiting_when};

    use super::{HAS_LOOPED, HAS_RECEIVER, LOOPS, is_ignored, is_interrupted, note, status_of};

    /// Time for what may stop by itself.
    const PATIENCE: Duration = Duration::from_millis(300);

    /// Time between two looks at what is at work.
    const TICK: Duration = Duration::from_millis(10);

    /// A signal that has come, set where it arrives: the thread that notes it runs later, and the end of a pipe may come before.
    static ARRIVED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

    pub fn look() {}

    pub fn arrived() -> i32 {
        // A receiver notes them itself.
        let arrived = ARRIVED.get().filter(|_| !HAS_RECEIVER.load(Ordering::Relaxed));
        arrived.map_or(0, |arrived| i32::try_from(arrived.load(Ordering::Relaxed)).unwrap_or(0))
    }

    pub fn heed() {
        static BEGIN: Once = Once::new();
        BEGIN.call_once(|| {
            stop_waiting_when(is_interrupted);
            // What nohup, or a shell in the background, has started without them goes on.
            let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter();
            let wanted: Vec<i32> = wanted.filter(|signal| !is_ignored(*signal)).collect();
            let arrived = ARRIVED.get_or_init(Arc::default);
            for signal in &wanted {
                // Without it the signal is noted a moment later.
                let number = usize::try_from(*signal).unwrap_or(0);
                let _ = signal_hook::flag::register_usize(*signal, Arc::clone(arrived), number);
            }
            // Without them the system ends the process.
            if let Ok(signals) = Signals::new(wanted) {
                thread::spawn(move || watch(signals));
            }
        });
    }

    fn watch(mut signals: Signals) {
        let mut first: Option<(i32, Instant)> = None;
        // Since when nothing is at work that would stop by itself.
        let mut idle: Option<Instant> = None;
        loop {
            let came: Vec<i32> = match first {
                None => signals.wait().collect(),
                Some(_) => {
                    thread::sleep(TICK);
                    signals.pending().collect()
                }
            };
            if came.contains(&SIGQUIT) {
                quit();
            }
            if HAS_RECEIVER.load(Ordering::Relaxed) {
                first = None;
                continue;
            }
            for signal in came {
                let is_first = note(signal);
                let (_, since) = *first.get_or_insert((signal, Instant::now()));
                // One key may come as several signals: from the terminal, and from the program that started this one.
                if !is_first && since.elapsed() >= PATIENCE {
                    end(signal);
                }
            }
            let Some((first, _)) = first else { continue };
            let stops = LOOPS.load(Ordering::Relaxed) > 0
                || Change::is_under_way()
                || HAS_LOOPED.load(Ordering::Relaxed) && !has_unfinished_outputs();
            idle = if stops { None } else { idle.or_else(|| Some(Instant::now())) };
            if idle.is_some_and(|since| since.elapsed() >= PATIENCE) {
                end(first);
            }
        }
    }

    /// Ends the process by SIGQUIT if that has come: what it interrupted may end before the thread that notes signals has run.
    pub fn end_by_quit() {
        if arrived() == SIGQUIT {
            quit();
        }
    }

    /// Ends the process as its user wants it, with a memory dump, but without the files that it has begun.
    fn quit() {
        remove_unfinished_outputs();
        let _ = signal_hook::low_level::emulate_default_handler(SIGQUIT);
    }

    /// Ends the process at once, but without the files that it has begun.
    fn end(signal: i32) -> ! {
        remove_unfinished_outputs();
        signal_hook::low_level::exit(status_of(signal).into())
    }
}

/// Systems that have no signals but these, which the C library makes.
#[cfg(not(unix))]
mod platform {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Once, OnceLock};

    use signal_hook::consts::{SIGINT, SIGTERM};

    use casemate::blockdev::stop_waiting_when;

    use super::{INTERRUPTED, is_interrupted, note};

    static CAME: OnceLock<Arc<AtomicBool>> = OnceLock::new();

    /// Signals are noted where they are looked at.
    pub fn arrived() -> i32 {
        0
    }

    pub fn end_by_quit() {}

    pub fn look() {
        if CAME.get().is_some_and(|came| came.load(Ordering::Relaxed)) {
            note(SIGINT);
        }
    }

    pub fn heed() {
        static BEGIN: Once = Once::new();
        let came = CAME.get_or_init(Arc::default);
        BEGIN.call_once(|| {
            stop_waiting_when(is_interrupted);
            for signal in [SIGINT, SIGTERM] {
                // The order matters: the shutdown looks at the flag before this signal sets it.
                let status = INTERRUPTED.into();
                let shutdown =
                    signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(came));
                let set = signal_hook::flag::register(signal, Arc::clone(came));
                shutdown.and(set).expect("SIGINT and SIGTERM can be handled");
            }
        });
    }
}

/// Whether this process was started with a signal ignored. Where the kernel does not tell, it was not.
#[cfg(unix)]
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
