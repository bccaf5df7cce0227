//! Files with fs-verity, as a check of a file system sees them: descriptor, tree, signature and contents.

use casemate_blockdev::Window;
use casemate_ext4::{Ext4, FindingKind, Inode, Problem, Result, VerityDemand};
use casemate_providers::Work;
use casemate_verity::fs::{Describer, Descriptor};
use casemate_verity::signature::{Certificate, Signature};
use casemate_verity::tree::{Block, Fault, Ranges};

use crate::{Code, Error, ErrorKind};

/// Demands of a check on files with fs-verity.
pub(super) struct Checked {
    /// Whether contents are compared with trees, and these with descriptors.
    pub contents: bool,
    /// Whether every file must have fs-verity, if contents are compared.
    pub of_all: bool,
    /// The certificate that all must be signed by.
    pub certificate: Option<Certificate>,
}

/// Calls for each thing that is wrong.
type Say<'a> = &'a mut (dyn FnMut(FindingKind, Problem) + Send);

impl casemate_ext4::VerityFiles for Checked {
    fn demand(&self) -> VerityDemand {
        match (self.contents, self.of_all, &self.certificate) {
            (true, true, _) => VerityDemand::Every,
            (_, _, Some(_)) => VerityDemand::Some,
            (true, false, None) => VerityDemand::Match,
            (false, _, None) => VerityDemand::Nothing,
        }
    }

    fn check(&self, fs: &Ext4, inode: &Inode, work: &Work<'_>, say: Say<'_>) -> Result<bool> {
        let mut is_right = true;
        let mut say = |kind, problem| {
            is_right = false;
            say(kind, problem);
        };
        let metadata = match fs.verity(inode) {
            Ok(Some(metadata)) => metadata,
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Locked => {
                if self.contents {
                    say(FindingKind::VerityLocked, Problem::Malformed("its key was not given".into()));
                }
                return Ok(false);
            }
            // Encrypted with what is unknown here: its context was looked at before.
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut wrong = |text: String| say(FindingKind::VerityDescriptor, Problem::Malformed(text.into()));
        let (descriptor, signature) = match Descriptor::from_disk(&metadata.descriptor) {
            Ok(found) => found,
            Err(error) => {
                wrong(error.text().into_owned());
                return Ok(false);
            }
        };
        let size = inode.size();
        let geometry = match descriptor.parameters().geometry(size) {
            Ok(geometry) => geometry,
            Err(error) => {
                wrong(error.text().into_owned());
                return Ok(false);
            }
        };
        let numbers = [
            (descriptor.data_size() != size, "bytes of the file", descriptor.data_size(), size),
            (
                geometry.tree_size() > metadata.tree_room,
                "bytes between contents and descriptor, where the tree is",
                metadata.tree_room,
                geometry.tree_size(),
            ),
        ];
        if let Some((_, what, found, expected)) = numbers.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            say(FindingKind::VerityDescriptor, Problem::Number { what: what.into(), found, expected });
            return Ok(false);
        }
        if size == 0 && descriptor.root_hash().iter().any(|byte| *byte != 0) {
            wrong("the root hash of an empty file must be zero".to_owned());
            return Ok(false);
        }
        if let Some(certificate) = &self.certificate
            && let Err(error) = signed(&descriptor, signature, certificate, work)
        {
            let text = error.text().into_owned();
            say(FindingKind::VeritySignature, Problem::Malformed(text.into()));
        }
        if !self.contents {
            return Ok(is_right);
        }
        let tree = Window::new(metadata.whole, metadata.tree_offset, metadata.tree_room)
            .map_err(|error| Error::io(format!("inode {}", inode.number()), error))?;
        let describer = Describer::new(descriptor.parameters().clone(), work)?;
        let mut hashes = Ranges::new();
        let first_blocks: Vec<u64> = geometry.levels().iter().map(|level| level.first_block).collect();
        // What lies below a bad block of the tree may be right.
        let mut report = |finding: casemate_verity::tree::Finding| {
            if let (Block::Hash { level, index }, Fault::Digest { trusted: true, .. }) =
                (finding.block, finding.fault)
            {
                let block = first_blocks[level] + index;
                hashes.insert(block..block + 1);
            }
            Ok(())
        };
        let found = describer.check(&fs.open_file(inode)?, &tree, descriptor.root_hash(), &mut report)?;
        let what = [
            (FindingKind::VerityTree, &hashes, "of the fs-verity tree: not as the tree above says"),
            (FindingKind::VerityContents, &found.bad_data, "of the file: not as its fs-verity tree says"),
        ];
        for (kind, ranges, what) in what {
            for range in ranges.iter() {
                say(kind, Problem::Run { first: range.start, last: range.end - 1, what });
            }
        }
        Ok(is_right)
    }
}

/// Whether a signature is by the certificate.
fn signed(
    descriptor: &Descriptor,
    signature: &[u8],
    certificate: &Certificate,
    work: &Work<'_>,
) -> std::result::Result<(), Error> {
    if signature.is_empty() {
        return Err(Error::coded(Code::BadSignature, "has no signature"));
    }
    let message = descriptor.digest(&work.providers)?.bytes_to_sign();
    Signature::from_bytes(signature)?.verify(&message, certificate, &work.providers).map(drop)
}
