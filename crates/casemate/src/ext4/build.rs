//! New ext4 file systems with fs-verity and fscrypt in them, and LUKS and dm-verity around them.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use casemate_ext4::{BuildOptions, BuildReport, Complete, Encrypt, Plan, Seal, Tree, uuid_text};
use casemate_providers::Work;
use casemate_verity::dm;

use super::encrypt::Encrypting;
use super::seal::Sealing;
use crate::luks::NewVolume;
use crate::target::{self, Made, Target};
use crate::verity::{FormatOptions, Formatted, Seed};
use crate::{Advice, Error, Image};

/// Makes an image on a temporary file, which is copied to standard output when everything is complete.
///
/// # Errors
/// Errors of `make`; `Io`.
pub(super) fn on_standard_output<R>(
    make: impl FnOnce(&Target) -> Result<R, Error>,
) -> Result<(R, Complete), Error> {
    let folder = tempfile::tempdir().map_err(|error| Error::io("a temporary folder", error))?;
    let path = folder.path().join("image");
    let target = Target::create(&path, Made::Data, &target::refuse)?;
    let made = make(&target)?;
    target.commit()?;
    let copy = move || {
        let copied = File::open(folder.path().join("image"));
        let mut to = io::stdout().lock();
        let copied = copied.and_then(|mut file| io::copy(&mut file, &mut to)).and_then(|_| to.flush());
        copied.map_err(|error| Error::io(STANDARD_OUTPUT, error))
    };
    Ok((made, Complete::Stream(Box::new(copy))))
}

/// Name of standard output in errors.
const STANDARD_OUTPUT: &str = "standard output";

/// Makes salt and UUID of dm-verity follow from the UUID of the file system, where no seed says otherwise.
fn identify(format: &mut FormatOptions, report: &BuildReport) {
    format.seed.get_or_insert_with(|| Seed::from_text(&uuid_text(&report.uuid)));
}

/// Decides where everything of a tree goes, with fs-verity on files and fscrypt on directories.
///
/// # Errors
/// `Argument` for options that contradict each other, and for fs-verity on files that are not there; `Io` for a size that is
/// too small (`StorageFull`), for directories that are not in the tree, and for a file with a name in an encrypted directory
/// and one outside.
pub(super) fn plan(
    tree: Tree,
    options: &BuildOptions,
    sealing: Option<Arc<Sealing>>,
    encrypting: Option<Encrypting>,
) -> Result<Plan, Error> {
    let mut options = options.clone();
    if encrypting.as_ref().is_some_and(Encrypting::needs_stable_inodes) {
        options.features.change("stable_inodes")?;
    }
    let sealer = sealing.clone().map(|sealing| -> Arc<dyn Seal> { sealing });
    let encrypter = encrypting.map(|encrypting| -> Arc<dyn Encrypt> { Arc::new(encrypting) });
    let plan = Plan::protected(tree, &options, sealer, encrypter)?;
    sealing.map_or(Ok(()), |sealing| sealing.check_used())?;
    Ok(plan)
}

/// Writes the file system into a new LUKS volume on an image, encrypted on its way. A new file does not have its name
/// then.
///
/// # Errors
/// Errors of [`Plan::write`] and [`NewVolume::write`].
pub(super) fn write_luks(
    plan: &Plan,
    image: &Target,
    volume: &NewVolume,
    work: &Work<'_>,
) -> Result<BuildReport, Error> {
    volume.write(image, plan.size(), work, |inner| {
        plan.write(&*inner.device(), false, work).map_err(|error| error.within(image.name()))
    })
}

/// Writes a LUKS volume as [`write_luks`] does, with dm-verity over the file system: the hash area lies behind it in the volume, or on a `hash` image.
///
/// # Errors
/// Errors of [`write_luks`] and [`write_verified`]; `Unsupported` for parity.
pub(super) fn write_luks_verified(
    plan: &Plan,
    image: &Target,
    volume: &NewVolume,
    hash: Option<&Target>,
    format: FormatOptions,
    work: &Work<'_>,
) -> Result<(BuildReport, Formatted), Error> {
    if format.area.fec.is_some() {
        return Err(Error::unsupported("parity of dm-verity within a LUKS volume"));
    }
    let mut format = verity(plan, image, hash, format)?;
    let layout = format.layout(image, &work.providers)?;
    let len = if hash.is_none() { layout.hash_device_size() } else { plan.size() };
    volume.write(image, len, work, |inner| {
        let report = plan.write(&*inner.device(), false, work);
        let report = report.map_err(|error| error.within(image.name()))?;
        identify(&mut format, &report);
        let formatted = match hash {
            Some(hash) => format.make(inner, hash, &target::refuse, work)?,
            None => {
                let layout = format.layout(image, &work.providers)?;
                let named = inner.named();
                let root_hash = dm::format(&layout, &named, &named, work)?;
                Formatted { layout, root_hash, fec: None, fec_on_hash_device: false }
            }
        };
        Ok((report, formatted))
    })
}

/// Writes the file system to an image, makes dm-verity's hash area over it, and parity if it is wanted. The hash area lies
/// behind the file system without a `hash` image; its salt and UUID follow from the file system's UUID, unless a seed says
/// otherwise. New files do not have their names then.
///
/// # Errors
/// Errors of [`Plan::write`]; `Argument` for a size that is not whole data blocks; those of [`FormatOptions::make`].
pub(super) fn write_verified(
    plan: &Plan,
    image: &Target,
    hash: Option<&Target>,
    format: FormatOptions,
    work: &Work<'_>,
) -> Result<(BuildReport, Formatted), Error> {
    let (size, mut format) = (plan.size(), verity(plan, image, hash, format)?);
    image.grow_to(size)?;
    if !image.is_new() {
        image.erase_signatures(0, work.events)?;
    }
    let report = plan.write(&*image.device(), image.is_new(), work);
    let report = report.map_err(|error| error.within(image.name()))?;
    identify(&mut format, &report);
    let formatted = format.make(image, hash.unwrap_or(image), &target::refuse, work)?;
    Ok((report, formatted))
}

/// Parameters of dm-verity over the file system.
fn verity(
    plan: &Plan,
    image: &Image,
    hash: Option<&Target>,
    mut format: FormatOptions,
) -> Result<FormatOptions, Error> {
    // These are targets, at which somebody has looked.
    format.overwrite = true;
    let size = plan.size();
    let block = u64::from(format.area.data_block_size.unwrap_or_default().bytes());
    if !size.is_multiple_of(block) {
        let text =
            format!("the file system has {size} bytes, which are not whole data blocks of {block} bytes");
        return Err(Error::argument(text).advise(Advice::Align(block)).at(image.name()));
    }
    format.area.data_blocks = Some(size / block);
    if hash.is_none() {
        format.area.hash_offset = size;
    }
    Ok(format)
}
