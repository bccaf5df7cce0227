//! `casemate providers`: what does the work, how fast, and what was refused and why.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use serde_json::json;

use casemate::providers::bench::{Speed, measure};
use casemate::providers::{Flags, Registry, Row, Standing, standing};
use casemate::{Error, Output, Providers};

use crate::answer::Answer;
use crate::context::Context;

/// List the implementations of every cipher and hash, test them, or measure them.
///
/// The default policy chooses only implementations that run on the CPU synchronously. Implementations that are
/// asynchronous, allocate memory for each request, or need a kernel driver are listed, and used only if they are named.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show only algorithms whose name contains this.
    #[arg(long, global = true, value_name = "TEXT")]
    algorithm: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Test every implementation: known answers, random data against the portable code, batches against single units.
    Selftest,
    /// Measure encryption and hashing: messages of 4096 bytes one at a time, and batches of 128 KiB.
    Bench {
        /// Also draw the figures to this SVG file.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
        /// Time to measure each implementation.
        #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
        time: u64,
    },
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let providers = Providers::with_engines(context.cpu());
        let registry = providers.registry();
        let wanted = |row: &&Row| self.algorithm.as_ref().is_none_or(|text| row.algorithm.contains(text));
        let rows: Vec<&Row> = registry.rows().iter().filter(wanted).collect();
        if rows.is_empty() {
            let text = self.algorithm.unwrap_or_default();
            return Err(Error::argument(format!("no algorithm has '{text}' in its name")));
        }
        match self.action {
            None => list(&providers, &rows, context),
            Some(Action::Selftest) => selftest(registry, &rows, context),
            Some(Action::Bench { plot, time }) => {
                bench(&rows, Duration::from_millis(time), plot.as_deref(), context)
            }
        }
    }
}

fn list(providers: &Providers, rows: &[&Row], context: &Context) -> Result<Answer, Error> {
    let mut text = String::new();
    let mut values = Vec::new();
    for row in rows {
        let (state, why) = match standing(providers, row) {
            Standing::Chosen => ("chosen", None),
            Standing::Allowed => ("allowed", None),
            Standing::Refused(why) => ("refused", Some(why)),
        };
        let flags: Vec<&str> = row.flags.names().collect();
        if context.json() {
            values.push(json!({
                "algorithm": row.algorithm, "driver": row.driver, "priority": row.priority, "flags": flags,
                "origin": row.origin.name(), "available": row.spec.is_ok(), "state": state, "reason": why,
            }));
            continue;
        }
        let (algorithm, driver, priority) = (&row.algorithm, &row.driver, row.priority);
        let origin = row.origin.name();
        let line =
            format!("{algorithm:<26} {driver:<38} {priority:>5}  {origin:<9} {state:<8} {}", flags.join(","));
        text += line.trim_end();
        text.push('\n');
        if let Some(why) = why {
            let _ = writeln!(text, "    {why}");
        }
    }
    if context.json() {
        context.print_json(&json!({ "providers": values }))?;
    } else {
        let head = ("ALGORITHM", "DRIVER", "PRIO", "ORIGIN", "STATE");
        context.print(format!(
            "{:<26} {:<38} {:>5}  {:<9} {:<8} FLAGS\n{text}",
            head.0, head.1, head.2, head.3, head.4
        ))?;
    }
    Ok(Answer::Yes)
}

fn selftest(registry: &Registry, rows: &[&Row], context: &Context) -> Result<Answer, Error> {
    let mut answer = Answer::Yes;
    let mut values = Vec::new();
    for row in rows {
        let (state, why) = match (&row.spec, registry.self_test(row)) {
            (Err(why), _) => ("not available", Some(why.as_str())),
            (Ok(_), Ok(())) => ("passed", None),
            (Ok(_), Err(why)) => {
                answer = Answer::No;
                ("FAILED", Some(why))
            }
        };
        if context.json() {
            values.push(json!({
                "algorithm": row.algorithm, "driver": row.driver, "result": state, "reason": why,
                "batches_compared": row.flags.contains(Flags::MULTI_DATA_UNIT) && state != "not available",
            }));
        } else {
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            context.print(format!("{:<26} {:<38} {state}{why}\n", row.algorithm, row.driver))?;
        }
    }
    if context.json() {
        context.print_json(&json!({ "selftests": values }))?;
    }
    Ok(answer)
}

fn bench(rows: &[&Row], time: Duration, plot: Option<&Path>, context: &Context) -> Result<Answer, Error> {
    if !context.json() {
        context.print(format!(
            "{:<26} {:<38} {:>10} {:>10}\n",
            "ALGORITHM", "DRIVER", "4 KiB MB/s", "batch MB/s"
        ))?;
    }
    let plot = plot.map(|path| Output::begin(path, &[])).transpose()?;
    let mut measured: Vec<(&Row, Speed)> = Vec::new();
    let mut values = Vec::new();
    for row in rows {
        let result = measure(row, time);
        if context.json() {
            let (single, batched) = result.as_ref().map_or((None, None), |s| (Some(s.single), s.batched));
            values.push(json!({
                "algorithm": row.algorithm, "driver": row.driver, "single_mb_s": single, "batched_mb_s": batched,
                "reason": result.as_ref().err(),
            }));
        } else {
            let figures = match &result {
                Ok(Speed { single, batched: Some(batched) }) => format!("{single:>10.0} {batched:>10.0}"),
                Ok(Speed { single, batched: None }) => format!("{single:>10.0} {:>10}", "-"),
                Err(why) => format!("  not measured: {why}"),
            };
            context.print(format!("{:<26} {:<38} {figures}\n", row.algorithm, row.driver))?;
        }
        if let Ok(speed) = result {
            measured.push((row, speed));
        }
    }
    if context.json() {
        context.print_json(&json!({ "message_bytes": 4096, "batch_bytes": 131_072, "bench": values }))?;
    }
    if let Some(plot) = plot {
        plot.finish(svg(&measured).as_bytes())?;
    }
    Ok(Answer::Yes)
}

/// Bars on a logarithmic scale: the rows differ by more than a hundred times.
fn svg(measured: &[(&Row, Speed)]) -> String {
    const ROW: usize = 22;
    const LEFT: f64 = 420.0;
    const DECADE: f64 = 140.0;
    let x = |speed: f64| LEFT + DECADE * speed.max(1.0).log10();
    let height = (measured.len() + 2) * ROW + 20;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1140\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\" font-size=\"14\">Encryption and hashing, MB/s: 4096-byte messages one at a time (dark), 128 KiB \
         batches (light)</text>\n"
    );
    for decade in [1, 10, 100, 1_000, 10_000, 100_000] {
        let at = x(f64::from(decade));
        let _ = writeln!(
            out,
            "<line x1=\"{at}\" x2=\"{at}\" y1=\"28\" y2=\"{height}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"40\" \
             fill=\"#888\">{}</text>",
            at + 2.0,
            decade
        );
    }
    for (k, (row, speed)) in measured.iter().enumerate() {
        let y = 48 + k * ROW;
        let _ = writeln!(out, "<text x=\"10\" y=\"{}\">{} by {}</text>", y + 12, row.algorithm, row.driver);
        if let Some(batched) = speed.batched {
            let _ = writeln!(
                out,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"15\" fill=\"#9ecae1\"/>",
                x(batched) - LEFT
            );
        }
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=\"9\" fill=\"#3182bd\"/>",
            y + 3,
            x(speed.single) - LEFT
        );
    }
    out.push_str("</svg>\n");
    out
}
