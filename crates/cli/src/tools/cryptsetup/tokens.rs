//! Tokens that cryptsetup would open a volume by: their passphrases are in the kernel's keyring, where nothing here looks.

use casemate::luks::Header;
use casemate::luks::luks2::Token;
use casemate::{Access, Error, Image};

use super::line::{Line, NO_KEYRING};
use super::options::Tool;
use crate::context::Context;

/// The status and the words of a command line that takes a passphrase of nothing but a token; of others, if that is wanted,
/// what is tried before.
pub(super) fn refused(tool: &Tool, line: &Line, context: &Context) -> Result<Option<(u8, String)>, Error> {
    let (id, kind) = (tool.token_id, tool.token_type.as_deref());
    let is_open = tool.action().as_deref() == Some("open") && tool.volume_key_file.is_none();
    let is_add = tool.action().as_deref() == Some("luksAddKey") && !tool.unbound;
    let is_file =
        tool.volume_key_file.is_some() || tool.key_files.first().is_some_and(|file| file.as_os_str() != "-");
    let is_named = tool.token_only || id.is_some() || kind.is_some();
    let is_told = context.manners().is_some_and(|manners| manners.verbose);
    let Some(device) = line.devices.last() else { return Ok(None) };
    let is_new_file = tool.new_keyfile.is_some() || tool.words.len() > 2;
    let is_old = is_add && is_named && !is_file;
    let is_new = is_add && tool.new_token_id.is_some() && !is_new_file;
    if !(is_old || is_new || is_open && (tool.token_only || is_told)) {
        return Ok(None);
    }
    let volume = Image::open(device, Access::ReadUnlocked);
    let volume = volume.and_then(|image| image.luks_volume(None, context.providers()));
    // The command itself refuses what is not a volume.
    let tokens = match volume.as_ref().map(|volume| volume.header()) {
        Ok(Header::Luks2(header)) => header.metadata.tokens(),
        Ok(Header::Luks1(_)) => Vec::new(),
        Err(_) => return Ok(None),
    };
    if is_old {
        return Ok(Some(answer(&tokens, id, kind)));
    }
    if is_new {
        return Ok(Some(answer(&tokens, tool.new_token_id, None)));
    }
    if is_open {
        let found = answer(&tokens, id, kind);
        if tool.token_only {
            return Ok(Some(found));
        }
        if found.0 == 1 {
            context.print(found.1 + "\n")?;
        }
    }
    Ok(None)
}

fn answer(tokens: &[Token], id: Option<i32>, kind: Option<&std::ffi::OsStr>) -> (u8, String) {
    // Others are known to plugins alone.
    let is_wanted = |token: &&Token| {
        token.kind == "luks2-keyring"
            && id.is_none_or(|id| u32::try_from(id) == Ok(token.id))
            && kind.is_none_or(|kind| kind == &*token.kind)
    };
    match (tokens.iter().find(is_wanted), id, kind) {
        (Some(_), ..) => (2, NO_KEYRING.to_owned()),
        (None, None, Some(kind)) => (1, format!("No usable token (type {}) is available.", kind.display())),
        (None, ..) => (1, "No usable token is available.".to_owned()),
    }
}
