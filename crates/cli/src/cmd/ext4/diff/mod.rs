//! `casemate ext4 diff`.

mod lines;

use clap::ValueHint;

use serde_json::json;

use casemate::blockdev::Events;
use casemate::ext4::{DiffImage, DiffOptions, ReadOptions};
use casemate::image_spec::ImageSpec;
use casemate::{Access, Error, probe};

use crate::advice;
use crate::answer::Answer;
use crate::cmd::explained::explained;
use crate::cmd::layers::{Asking, spec_parser};
use crate::context::{Context, advice_value, error_value};
use crate::streams::visible;

/// List all differences between two ext4 images.
///
/// For images that must be made again byte for byte. Exit status 0: all bytes of both file systems are equal, 1: they
/// differ, 2: they could not be compared, or not all of them.
///
/// A line for each difference: fields of the superblock; files that only one image has; types, attributes and contents of
/// files; descriptors of groups; where and how files are stored; and last, by areas, how many bytes differ where. The areas
/// count each byte that differs once, also in journals, behind the ends of files and in unused blocks. Values are those of A
/// and of B. Paths in angle brackets are inodes without a name. The options of casemate ext4 build that make two builds
/// more alike are named at the end, on standard error.
///
/// Files are compared as they are once a journal is replayed, bytes as they lie in the image.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 build one.img --from rootfs\n\
    \x20 casemate ext4 build two.img --from rootfs\n\
    \x20 casemate ext4 diff one.img two.img\n\
    \x20 casemate ext4 diff --files root.img two.img || test $? = 1\n\
    \x20 casemate ext4 diff --json one.img two.img | jq -r 'select(.kind == \"only\").path'")]
pub struct Args {
    /// The first image: a file or block device, or with the layers on it, such as disk.img,partition=2,luks,key-file=pw.
    #[arg(value_name = "A", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    a: ImageSpec,
    /// The second image, as the first.
    #[arg(value_name = "B", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    b: ImageSpec,
    /// Compare names, contents and attributes of files alone: not where they lie, nor fields of the file systems. The exit
    /// status is 0 if these are equal.
    #[arg(long)]
    files: bool,
    /// Print no more than N differences. The others are counted.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Read structures with a wrong checksum, too.
    #[arg(long)]
    ignore_checksums: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let [a, b] = [self.open(&self.a, context)?, self.open(&self.b, context)?];
        let progress = context.progress(&self.a.file().display().to_string(), a.diff_size(&b));
        let work = context.work(context.providers().clone(), &progress);
        let options = DiffOptions::new().files_only(self.files);
        let mut printed = 0_u64;
        let report = a.diff(&b, options, &work, &mut |difference| {
            if self.limit.is_some_and(|limit| printed >= limit) {
                return Ok(());
            }
            printed += 1;
            match context.json() {
                true => context.print_json(&lines::value(difference)),
                false => context.print(lines::text(difference)),
            }
        })?;
        drop(progress);
        let left_out = (report.differences + report.unread).saturating_sub(printed);
        if context.json() {
            let advice = report.advice.iter().map(advice_value).collect::<Vec<_>>();
            context.print_json(&json!({
                "kind": "summary",
                "equal": report.is_equal,
                "differences": report.differences,
                "left_out": left_out,
                "unread": report.unread,
                "bytes": report.bytes,
                "advice": advice,
            }))?;
        } else {
            if self.limit.is_some() && left_out > 0 {
                context.note(&format!("{left_out} more differences were found"));
            }
            for advice in &report.advice {
                let option = advice::option(advice).map_or_else(String::new, |option| format!(" ({option})"));
                // A label is anybody's text.
                context.note(&visible(&format!("{advice}{option}")));
            }
        }
        for image in [&a, &b] {
            image.file_system().note_useless_keys(context);
        }
        Ok(match (report.is_equal, report.differences) {
            (true, _) => Answer::Yes,
            // What could not be read may be equal.
            (false, 0) => Answer::Failed,
            (false, _) => Answer::No,
        })
    }

    fn open(&self, spec: &ImageSpec, context: &Context) -> Result<DiffImage, Error> {
        let file_system = spec.file_system();
        let mut options = ReadOptions::default();
        options.keys = file_system.keys()?;
        options.superblock = file_system.superblock;
        options.verify_checksums = !self.ignore_checksums;
        let image = spec.lay(spec.open_part(Access::Read, true)?, &Asking::of(context))?;
        image
            .ext4_to_compare(&options, &context.opening())
            .map_err(|error| explained(error, &image, probe::EXT))
    }
}
