//! Files by path: described, alone or many together, and checked against stored trees.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, FileDevice, Output, Pool, u64_of, usize_of};
use casemate_providers::Work;

use super::watched::Watched;
use super::{Describer, Descriptor, FileDigest, Input, Parameters};
use crate::tree::{Finding, SpilledLevels, Summary, TreeDevice, TreeSink};
use crate::{Code, Error};

/// Files up to this size are shared out among threads whole; larger ones get all threads, one after the other.
/// At 8 MiB starting threads for one file costs less than a hundredth of its hashing.
const SMALL: u64 = 8 << 20;

/// Files that are worked on together before their results are given out.
const BATCH: usize = 1024;

/// Describes one input with all threads. With `tree`, its hash tree is written to a file of this name.
///
/// # Errors
/// `Io` says which file; a tree that could not be written whole leaves nothing behind.
pub fn describe(
    name: &Path,
    input: Input,
    parameters: &Parameters,
    work: &Work<'_>,
    tree: Option<&Path>,
) -> Result<Descriptor, Error> {
    let (descriptor, output) = describe_keeping(name, input, parameters, work, tree)?;
    output.map_or(Ok(()), Output::commit)?;
    Ok(descriptor)
}

/// Describes one input as [`describe`] does, but the tree's file has its contents and not its name yet: what else is made of the
/// input can be written before.
///
/// # Errors
/// Errors of [`describe`].
pub fn describe_keeping(
    name: &Path,
    input: Input,
    parameters: &Parameters,
    work: &Work<'_>,
    tree: Option<&Path>,
) -> Result<(Descriptor, Option<Output>), Error> {
    let describer = Describer::new(parameters.clone(), work)?;
    let run = |input: Input, sink: &dyn TreeSink| match input {
        Input::Device(device) => describer.describe(&device, sink),
        Input::Stream(mut stream) => describer.describe_stream(&mut stream, sink),
    };
    let on_input = |error: Error| error.at(name.display());
    let Some(path) = tree else { return Ok((run(input, &()).map_err(on_input)?, None)) };
    let on_tree = |error| Error::io(path.display(), error);
    let mut output = Output::create(path, &[name])?;
    let descriptor = match (output.device(), &input) {
        // Both have positions: every block goes to its place at once.
        (Some(target), Input::Device(device)) => {
            let geometry = parameters.geometry(device.size()).map_err(on_input)?;
            let sink = Watched::new(TreeDevice::new(&geometry, target, 0));
            let described = describer.describe_as(&geometry, device, &sink);
            described.map_err(
                |error| {
                    if sink.failed() { error.at(path.display()) } else { on_input(error) }
                },
            )?
        }
        _ => {
            let levels = SpilledLevels::new(parameters.block_size());
            let sink = Watched::new(levels);
            let described = run(input, &sink);
            let descriptor = described
                .map_err(|error| if sink.failed() { error.at("temporary file") } else { on_input(error) })?;
            sink.into_inner().copy_to(&mut output).map_err(on_tree)?;
            descriptor
        }
    };
    Ok((descriptor, Some(output)))
}

/// Describes all that a device holds, with all threads.
///
/// # Errors
/// Errors of reading.
pub fn describe_device(
    device: &dyn BlockDevice,
    parameters: &Parameters,
    work: &Work<'_>,
) -> Result<Descriptor, Error> {
    Describer::new(parameters.clone(), work)?.describe(device, &())
}

/// The digest of a file, as the kernel has it when fs-verity is enabled on the file.
///
/// # Errors
/// `Io`.
pub fn digest(path: impl AsRef<Path>, parameters: &Parameters, work: &Work<'_>) -> Result<FileDigest, Error> {
    let path = path.as_ref();
    describe(path, Input::open(path)?, parameters, work, None)?.digest(&work.providers)
}

/// Describes many files: small ones in parallel, large ones one after the other with all threads. Results come
/// in the order of `paths`, some at a time; one file's error does not keep others from being described.
///
/// # Errors
/// Errors of `results`, and an interruption by the listener.
pub fn describe_many(
    paths: &[&Path],
    parameters: &Parameters,
    work: &Work<'_>,
    mut results: impl FnMut(Vec<(&Path, Result<Descriptor, Error>)>) -> Result<(), Error>,
) -> Result<(), Error> {
    let one_thread = Work { pool: Pool::new(Some(NonZeroUsize::MIN)), ..work.clone() };
    let describer = Describer::new(parameters.clone(), &one_thread)?;
    let describe_small = |path: &Path, device: &FileDevice, size: u64| {
        let described = parameters.geometry(size);
        let described = described.and_then(|geometry| describer.describe_as(&geometry, device, &()));
        described.map_err(|error| error.at(path.display()))
    };
    let describe_one = |path: &Path| match Input::open(path).map(|input| (input.size(), input)) {
        Ok((Some(size), Input::Device(device))) if size <= SMALL => {
            Done::Small(describe_small(path, &device, size))
        }
        // Closed again, so that a long list of large files does not use up the file descriptors.
        Ok((_, Input::Device(_))) => Done::Large,
        Ok((_, stream)) => Done::Stream(stream),
        Err(error) => Done::Small(Err(error)),
    };
    for batch in paths.chunks(BATCH) {
        let slots: Vec<Mutex<Option<Done>>> = batch.iter().map(|_| Mutex::default()).collect();
        let work_on = |_: &mut (), i: u64| {
            let i = usize_of(i);
            *slots[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(describe_one(batch[i]));
            Ok::<_, Error>(())
        };
        work.pool.run(u64_of(batch.len()), || (), work_on)?;
        let mut done = Vec::new();
        for (path, slot) in batch.iter().zip(slots) {
            let result = match slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(Done::Small(result)) => result,
                Some(Done::Stream(stream)) => describe(path, stream, parameters, work, None),
                Some(Done::Large) | None => {
                    // What is known already should not wait for a long file.
                    results(std::mem::take(&mut done))?;
                    Input::open(path).and_then(|input| describe(path, input, parameters, work, None))
                }
            };
            match result {
                Err(error) if error.is_interrupt() => return Err(error),
                result => done.push((*path, result)),
            }
        }
        results(done)?;
    }
    Ok(())
}

/// Checks a file against its stored tree, and calls `report` for each wrong block.
///
/// With `expected`, everything is checked below its root hash, and it says with which parameters; without, below
/// the tree's own top block, which shows damage but not forgery. Returns the summary, and the descriptor that
/// the check rested on: its digest is for the caller to compare.
///
/// # Errors
/// `Mismatch` if the file's size is not the expected one; `Io` also for a tree that is too short.
pub fn check_tree(
    file: &Path,
    tree: &Path,
    expected: Option<&Descriptor>,
    parameters: &Parameters,
    work: &Work<'_>,
    report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
) -> Result<(Summary, Descriptor), Error> {
    let data = FileDevice::open(file).map_err(|error| Error::io(file.display(), error))?;
    let tree_device = FileDevice::open(tree).map_err(|error| Error::io(tree.display(), error))?;
    let on_file = |error: Error| error.at(file.display());
    let size = data.size();
    if let Some(expected) = expected.filter(|expected| expected.data_size() != size) {
        let (name, right) = (file.display(), expected.data_size());
        return Err(Error::coded(
            Code::BadDigest,
            format!("{name}: {size} bytes; the descriptor is of a file of {right}"),
        ));
    }
    let parameters = expected.map_or(parameters, Descriptor::parameters);
    let tree_size = parameters.geometry(size).map_err(on_file)?.tree_size();
    if tree_device.size() != tree_size {
        let (name, found) = (tree.display(), tree_device.size());
        let text = format!("{name}: {found} bytes; the tree of {} has {tree_size}", file.display());
        return Err(Error::corrupt(text));
    }
    let describer = Describer::new(parameters.clone(), work)?;
    let descriptor = match expected {
        Some(expected) => expected.clone(),
        None => match describer.stored_root_hash(size, &tree_device) {
            Ok(Some(root_hash)) => Descriptor::new(parameters.clone(), size, &root_hash),
            Ok(None) => describer.describe(&data, &()).map_err(on_file)?,
            Err(error) => return Err(error.at(tree.display())),
        },
    };
    if size == 0 && descriptor.root_hash().iter().any(|byte| *byte != 0) {
        let text = format!("{}: the root hash of an empty file must be zero", file.display());
        return Err(Error::coded(Code::BadDigest, text));
    }
    let checked = describer.check(&data, &tree_device, descriptor.root_hash(), report);
    Ok((checked.map_err(on_file)?, descriptor))
}

/// One file's part of a batch.
enum Done {
    Small(Result<Descriptor, Error>),
    Large,
    Stream(Input),
}
