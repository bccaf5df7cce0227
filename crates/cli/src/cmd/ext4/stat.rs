//! `casemate ext4 stat`.

use std::ffi::OsString;
use std::fmt::Write as _;

use serde_json::{Value, json};

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::{EncryptionInfo, Ext4, FileType, Inode, encryption_info, verity_info};
use casemate::fscrypt::Context as EncryptionContext;
use casemate::hex;

use super::entry::{self, long_time, mode, shown, time_value};
use super::image::ImageArgs;
use crate::answer::Answer;
use crate::context::{Context, Failures};

/// Show everything about files: inode, times, flags, attributes, fs-verity digest, encryption context.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  casemate ext4 stat root.img /bin/sh\n  casemate ext4 stat --json root.img /etc"
)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Follow symbolic links.
    #[arg(short = 'L', long)]
    dereference: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let mut failures = Failures::default();
        for path in &self.paths {
            let inode = if self.dereference { fs.metadata(path) } else { fs.symlink_metadata(path) };
            let shown = inode.and_then(|inode| {
                let fs = fs.inodes();
                let value = self.value(fs, path.as_bytes(), &inode, context)?;
                if context.json() {
                    return context.print_json(&value);
                }
                context.print(text(fs, path.as_bytes(), &inode, &value))
            });
            match shown {
                Err(error) if error.is_broken_pipe() => return Err(error),
                Err(error) => failures.add(context, error),
                Ok(()) => {}
            }
        }
        failures.finish()
    }

    fn value(&self, fs: &Ext4, path: &[u8], inode: &Inode, context: &Context) -> Result<Value, Error> {
        let fail = |error| self.image.error(error);
        let mut value = entry::value(fs, path, inode).map_err(fail)?;
        value["sectors"] = inode.sectors(fs.layout().block_size).into();
        value["generation"] = inode.generation().into();
        value["project"] = inode.project().into();
        value["atime"] = time_value(inode.accessed());
        value["ctime"] = time_value(inode.changed());
        if let Some(created) = inode.created() {
            value["crtime"] = time_value(created);
        }
        let xattrs = fs.xattrs(inode).map_err(fail)?;
        value["xattrs"] = xattrs
            .iter()
            .map(
                |xattr| json!({"name": String::from_utf8_lossy(&xattr.name), "value_hex": hex::encode(&xattr.value)}),
            )
            .collect();
        let encryption = encryption_info(fs, inode);
        if let Ok(Some(encryption)) = &encryption {
            value["encryption"] = encryption_value(encryption);
        }
        // Without the key the descriptor is ciphertext, too.
        let locked = !matches!(&encryption, Ok(None | Some(EncryptionInfo { readable: true, .. })));
        if !locked && let Some(verity) = verity_info(fs, inode)? {
            let digest = verity.digest(context.providers())?;
            value["verity"] = json!({
                "digest": format!("{}:{}", digest.algorithm().name(), digest.hex()),
                "block_size": verity.descriptor.parameters().block_size(),
                "salt": hex::encode(verity.descriptor.parameters().salt()),
                "signature_bytes": verity.signature.len(),
            });
        }
        if let Some(encrypted) = fs.encrypted(inode).map_err(fail)? {
            value["encryption_context"] = hex::encode(&encrypted.context).into();
        }
        if let Err(error) = encryption {
            value["encryption_error"] = error.to_string().into();
        }
        Ok(value)
    }
}

fn encryption_value(info: &EncryptionInfo) -> Value {
    let EncryptionContext { policy, nonce } = &info.context;
    json!({
        "version": policy.version(),
        "contents": policy.contents.name(),
        "filenames": policy.names.name(),
        "padding": policy.padding,
        "flag": policy.ivs.flag_name(),
        "data_unit_size": (policy.log2_data_unit_size != 0).then(|| 1u64 << policy.log2_data_unit_size),
        format!("key_{}", policy.key.kind()): policy.key.to_string(),
        "nonce": hex::encode(nonce),
        "readable": info.readable,
    })
}

/// As stat(1) prints it, with what only ext4 has behind.
fn text(fs: &Ext4, path: &[u8], inode: &Inode, value: &Value) -> Vec<u8> {
    let mut out = b"  File: ".to_vec();
    out.extend(shown(path));
    if inode.kind() == FileType::Symlink
        && let Ok(target) = fs.symlink_target(inode)
    {
        out.extend(b" -> ");
        out.extend(shown(&target));
    }
    let mut text = String::from("\n");
    let mut line = |line: String| writeln!(text, "{line}").expect("writing to a string");
    let kind = match inode.kind() {
        FileType::Regular => "regular file",
        other => other.name(),
    };
    line(format!(
        "  Size: {:<15} Blocks: {:<10} IO Block: {:<6} {kind}",
        value["size"].as_u64().unwrap_or_default(),
        inode.sectors(fs.layout().block_size),
        fs.layout().block_size,
    ));
    let device =
        inode.device().map_or(String::new(), |(major, minor)| format!(" Device type: {major},{minor}"));
    line(format!(" Inode: {:<15} Links: {}{device}", inode.number(), inode.links()));
    line(format!(
        "Access: ({:04o}/{})  Uid: {:>5}  Gid: {:>5}",
        inode.mode() & 0o7777,
        mode(inode),
        inode.uid(),
        inode.gid()
    ));
    line(format!("Access: {}", long_time(inode.accessed())));
    line(format!("Modify: {}", long_time(inode.modified())));
    line(format!("Change: {}", long_time(inode.changed())));
    if let Some(created) = inode.created() {
        line(format!(" Birth: {}", long_time(created)));
    }
    line(format!(" Flags: {} ({})", inode.flags(), inode.flags().names().join(" ")));
    line(format!("  More: Generation: {} Project: {}", inode.generation(), inode.project()));
    for xattr in value["xattrs"].as_array().into_iter().flatten() {
        let part = |key: &str| xattr[key].as_str().unwrap_or_default().to_owned();
        line(format!(" Xattr: {}=0x{}", part("name"), part("value_hex")));
    }
    if let Some(digest) = value["verity"]["digest"].as_str() {
        line(format!("Verity: {digest}"));
    }
    if let Some(context) = value["encryption_context"].as_str() {
        line(format!(" Crypt: context 0x{context}"));
    }
    if let Some(error) = value["encryption_error"].as_str() {
        line(format!(" Crypt: {error}"));
    }
    if let Ok(Some(info)) = encryption_info(fs, inode) {
        let EncryptionContext { policy, nonce } = info.context;
        let mut policy_text = format!(
            " Crypt: policy version {}, contents {}, filenames {}, padding {}",
            policy.version(),
            policy.contents,
            policy.names,
            policy.padding
        );
        policy_text.extend(policy.ivs.flag_name().map(|flag| format!(", {flag}")));
        if policy.log2_data_unit_size != 0 {
            policy_text += &format!(", data units of {} bytes", 1u64 << policy.log2_data_unit_size);
        }
        line(policy_text);
        let state = if info.readable { "given" } else { "missing" };
        line(format!(
            " Crypt: key {} {} ({state}), nonce {}",
            policy.key.kind(),
            policy.key,
            hex::encode(&nonce)
        ));
    }
    out.extend(text.bytes());
    out
}
