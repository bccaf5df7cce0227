//! OCI image layouts: folders with an `index.json`, and blobs that are named by their digests
//! (<https://github.com/opencontainers/image-spec/blob/main/image-layout.md>).

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use casemate_blockdev::os::open_regular;
use casemate_blockdev::{Code, Events, u64_of};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::hex;
use casemate_primitives::sha256::Sha256;
use serde_json::Value;

use crate::{Error, unpacked};

/// Bytes of an index or manifest that are read, as registries limit them.
const MOST_DOCUMENT: u64 = 4 << 20;

/// Indexes that are read within indexes.
const MOST_DEPTH: u32 = 4;

/// Images and indexes of a layout: one index may name another one very often.
const MOST_ENTRIES: usize = 4096;

/// A layer of an image: its blob, open at the beginning, with the right digest.
pub struct Layer {
    /// The blob's path.
    pub path: PathBuf,
    /// The blob.
    pub file: File,
}

/// Work of looking at blobs: the CPU that makes digests, and who hears of it.
#[derive(Clone, Copy)]
struct Work<'a> {
    cpu: Cpu,
    events: &'a dyn Events,
}

/// Images that an index names, with all that names them.
#[derive(Default)]
struct Images {
    found: Vec<(String, Value)>,
    entries: usize,
}

/// A blob as an index or manifest describes it.
struct Blob<'a> {
    folder: &'a Path,
    /// The digest's 64 hexadecimal digits.
    digits: String,
    size: u64,
    media_type: String,
}

/// The layers of an image, the lowest first: of the only image of a layout folder, or of that with this name, digest or
/// platform (`linux/arm64`).
///
/// # Errors
/// `Io`; `Corrupt` for what is no layout; `Mismatch` for a blob that is not what its digest says; `Argument` if it is not clear
/// which image is meant.
pub fn layers(folder: &Path, name: Option<&str>, cpu: Cpu, events: &dyn Events) -> Result<Vec<Layer>, Error> {
    let work = &Work { cpu, events };
    let path = folder.join("index.json");
    let mut images = Images::default();
    let index = parse(&read(&path)?, &path)?;
    images.collect(folder, &index, None, 0, work)?;
    let images = images.found;
    let mut chosen: Vec<&(String, Value)> =
        images.iter().filter(|(label, _)| is_named(label, name)).collect();
    // The same image may have several names.
    chosen.dedup_by(|(_, a), (_, b)| a["digest"] == b["digest"]);
    let [(_, image)] = chosen[..] else {
        let known: Vec<&str> = images.iter().map(|(label, _)| &label[..]).collect();
        let what = if chosen.is_empty() {
            "the layout does not hold this image"
        } else {
            "several images; name one"
        };
        return Err(Error::argument(format!("{what}: there are {}", known.join("; "))).at(folder.display()));
    };
    let image = Blob::new(folder, image)?;
    let manifest = image.document(work)?;
    let layers = manifest["layers"].as_array();
    let layers = layers.filter(|layers| !layers.is_empty());
    let layers = layers.ok_or_else(|| corrupt(&image.path(), "the manifest lists no layers"))?;
    let contents = contents(folder, &manifest["config"], work)?;
    if let Some(contents) = contents.as_ref().filter(|contents| contents.len() != layers.len()) {
        let text =
            format!("the manifest lists {} layers, and its configuration {}", layers.len(), contents.len());
        return Err(corrupt(&image.path(), &text));
    }
    layers
        .iter()
        .enumerate()
        .map(|(number, layer)| {
            let layer = Blob::new(folder, layer)?;
            if !layer.media_type.contains("tar") || layer.media_type.contains("encrypted") {
                let text = format!("a layer has the type {}, which is not supported", layer.media_type);
                return Err(Error::unsupported(text).at(image.path().display()));
            }
            let opened = Layer { path: layer.path(), file: layer.open(work)? };
            if let Some(contents) = &contents {
                opened.compare(&contents[number], work)?;
            }
            Ok(opened)
        })
        .collect()
}

/// The digests of the layers before they were compressed, by the configuration of an image; `None` if it has none, or one that is
/// not an image's.
fn contents(folder: &Path, config: &Value, work: &Work<'_>) -> Result<Option<Vec<String>>, Error> {
    if config.is_null() {
        return Ok(None);
    }
    let config = Blob::new(folder, config)?;
    if !["image.config", "container.image"].iter().any(|kind| config.media_type.contains(kind)) {
        return Ok(None);
    }
    let list = config.document(work)?["rootfs"]["diff_ids"].take();
    let list = list.as_array().and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let list = list.ok_or_else(|| corrupt(&config.path(), "the configuration has no digests of layers"))?;
    Ok(Some(list.into_iter().map(str::to_owned).collect()))
}

impl Layer {
    /// Compares what the layer holds, before it was compressed, with a digest.
    fn compare(&self, digest: &str, work: &Work<'_>) -> Result<(), Error> {
        let mut file = &self.file;
        let found = format!("sha256:{}", digest_of(unpacked(file)?, &self.path, work)?);
        file.rewind().map_err(|error| Error::io(self.path.display(), error))?;
        match found == digest {
            true => Ok(()),
            false => Err(mismatch(&self.path, "its contents are not what the image's configuration says")),
        }
    }
}

/// The hexadecimal SHA-256 of all that a reader has.
fn digest_of(mut input: impl Read, path: &Path, work: &Work<'_>) -> Result<String, Error> {
    let mut hash = Sha256::new(work.cpu).hasher();
    let mut buffer = vec![0; 1 << 20];
    loop {
        work.events.advance(0)?;
        match input.read(&mut buffer).map_err(|error| Error::io(path.display(), error))? {
            0 => return Ok(hex::encode(&hash.finalize())),
            len => hash.update(&buffer[..len]),
        }
    }
}

impl Images {
    /// Adds the images of an index, and those of the indexes in it, with all that names them.
    fn collect(
        &mut self,
        folder: &Path,
        index: &Value,
        above: Option<&str>,
        depth: u32,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let manifests = index["manifests"].as_array();
        for entry in manifests.ok_or_else(|| corrupt(folder, "the index lists no manifests"))? {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(corrupt(folder, &format!("more than {MOST_ENTRIES} images and indexes")));
            }
            let blob = Blob::new(folder, entry)?;
            let Some(mut names) = names(entry) else { continue };
            names.push(above.unwrap_or_default().to_owned());
            names.push(format!("sha256:{}", blob.digits));
            names.retain(|name| !name.is_empty());
            let label = names.join(" ");
            if blob.media_type.contains("index") || blob.media_type.contains("manifest.list") {
                if depth >= MOST_DEPTH {
                    return Err(corrupt(&blob.path(), "indexes within indexes"));
                }
                // What names the index names all that is in it.
                self.collect(folder, &blob.document(work)?, Some(&label), depth + 1, work)?;
            } else {
                self.found.push((label, entry.clone()));
            }
        }
        Ok(())
    }
}

/// Names of an image by its entry in an index; `None` if the entry is not an image.
fn names(entry: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let platform = &entry["platform"];
    let mut names = vec![text(&entry["annotations"]["org.opencontainers.image.ref.name"])];
    // What says how an image was built is no image.
    if text(&platform["os"]) == "unknown" {
        return None;
    }
    if platform["os"].is_string() {
        let variant = platform["variant"].as_str().map(|variant| format!("/{variant}"));
        let architecture = text(&platform["architecture"]);
        names.push(format!("{}/{architecture}{}", text(&platform["os"]), variant.unwrap_or_default()));
    }
    Some(names)
}

/// Whether one of an image's names is this one.
fn is_named(label: &str, name: Option<&str>) -> bool {
    name.is_none_or(|name| label.split(' ').any(|word| word == name))
}

impl<'a> Blob<'a> {
    fn new(folder: &'a Path, descriptor: &Value) -> Result<Blob<'a>, Error> {
        let wrong = |what: String| Err(corrupt(folder, &what));
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        let digits = match digest.split_once(':') {
            Some(("sha256", digits)) => digits.to_owned(),
            Some((algorithm, _)) => {
                let text = format!("digests of {}", algorithm.escape_debug());
                return Err(Error::unsupported(text).at(folder.display()));
            }
            None => return wrong("a descriptor has no digest".to_owned()),
        };
        if digits.len() != 64 || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return wrong(format!("'{}' is not a digest", digest.escape_debug()));
        }
        let Some(size) = descriptor["size"].as_u64() else {
            return wrong(format!("the descriptor of {digest} has no size"));
        };
        let media_type = descriptor["mediaType"].as_str().unwrap_or_default().to_owned();
        Ok(Blob { folder, digits, size, media_type })
    }

    fn path(&self) -> PathBuf {
        self.folder.join("blobs/sha256").join(&self.digits)
    }

    /// An index or a manifest.
    fn document(&self, work: &Work<'_>) -> Result<Value, Error> {
        let path = self.path();
        let bytes = read(&path)?;
        self.compare(&digest_of(&bytes[..], &path, work)?)?;
        parse(&bytes, &path)
    }

    /// The blob's file, when all of it was compared with its digest: what has its name later may be another one.
    fn open(&self, work: &Work<'_>) -> Result<File, Error> {
        let path = self.path();
        let failed = |error: std::io::Error| Error::io(path.display(), error);
        let file = open_regular(&path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        if size != self.size {
            return Err(mismatch(&path, &format!("{size} bytes, and its descriptor says {}", self.size)));
        }
        self.compare(&digest_of(&file, &path, work)?)?;
        (&file).rewind().map_err(failed)?;
        Ok(file)
    }

    fn compare(&self, digits: &str) -> Result<(), Error> {
        match digits == self.digits {
            true => Ok(()),
            false => Err(mismatch(&self.path(), "not what its digest says")),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = open_regular(path).map_err(|error| Error::io(path.display(), error))?;
    let read = file.take(MOST_DOCUMENT + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::io(path.display(), error))?;
    match u64_of(bytes.len()) > MOST_DOCUMENT {
        true => Err(corrupt(path, "the index or manifest is larger than 4 MiB")),
        false => Ok(bytes),
    }
}

fn parse(bytes: &[u8], path: &Path) -> Result<Value, Error> {
    serde_json::from_slice(bytes).map_err(|error| corrupt(path, &error.to_string()))
}

fn corrupt(path: &Path, what: &str) -> Error {
    Error::corrupt(format!("OCI layout: {what}")).at(path.display())
}

fn mismatch(path: &Path, what: &str) -> Error {
    Error::coded(Code::BadDigest, format!("OCI layout: {what}")).at(path.display())
}
