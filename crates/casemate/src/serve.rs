//! Images offered over NBD.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use casemate_blockdev::Events;
use casemate_nbd::tls::Tls;
use casemate_nbd::{Address, Export, Limits, Listener, Server};
use casemate_providers::Work;

use crate::{Advice, Error, Image};

/// Options of offering an image.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The export's name, which clients have to ask for, where there is one.
    pub export_name: String,
    /// Encryption of connections, and the clients that are let in; none and all by default.
    pub tls: Tls,
    /// Limits for clients, threads and memory.
    pub limits: Limits,
    /// The listener, told of each fault in a note, from any thread.
    pub events: Option<Arc<dyn Events + Send + Sync>>,
}

impl fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("ServeOptions");
        text.field("export_name", &self.export_name).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Images that are being offered. Dropped without [`Service::stop`], it goes on to the end of the process.
pub struct Service {
    server: Server,
    exports: Vec<Arc<Export>>,
    address: Address,
    uris: Vec<String>,
}

impl Image {
    /// Offers the device on top over NBD, to many clients at once. Whether it can be written is what the image says.
    ///
    /// # Errors
    /// `Io` if no thread can be started.
    pub fn serve(&self, listener: Listener, options: &ServeOptions) -> Result<Service, Error> {
        Service::start(&[(&options.export_name, self)], listener, options)
    }

    /// The image as others may have it: a change of the ext4 file system in it that was interrupted is shown as complete,
    /// which the listener hears. The change is kept in `recovery_file`, beside the image if `None`.
    ///
    /// # Errors
    /// `Unsupported` if there is such a change, and the image could be written, or if it is one in a part of the image: it
    /// has to be completed first.
    pub fn settled(self, recovery_file: Option<&Path>, work: &Work<'_>) -> Result<Image, Error> {
        self.check_parts_settled("the whole image is served", &work.providers)?;
        let Some(completed) = self.completed(recovery_file, &work.providers)? else {
            self.note_half_changed(work.events);
            return Ok(self);
        };
        let what = "a change of the file system in it was interrupted";
        if !self.is_read_only() {
            let text = format!("{what}, and must be completed before others write to it");
            return Err(Error::unsupported(text).advise(Advice::Recover).within(self.name()));
        }
        let text = format!("{}: {what}, and is shown as complete", self.name());
        work.events.advise(&text, Advice::Recover);
        Ok(completed)
    }
}

impl Service {
    /// Offers the devices on top of images, each under its name, as [`Image::serve`] does with one.
    ///
    /// # Errors
    /// `Argument` for no image, and for two of one name; [`Error::is_busy`] while another writer changes an image that takes
    /// writes; `Io` if no thread can be started.
    pub fn start(
        images: &[(&str, &Image)],
        listener: Listener,
        options: &ServeOptions,
    ) -> Result<Service, Error> {
        let address = listener.address().clone();
        let with_tls = options.tls.mode() != casemate_nbd::protocol::TlsMode::Off;
        let uris = images.iter().map(|(name, _)| address.uri(with_tls, name)).collect();
        let export = |(name, image): &(&str, &Image)| {
            // Clients remember what they have written.
            let device = if image.is_read_only() { image.device() } else { image.leased_device()? };
            Ok(Arc::new(Export::new(device, name, image.is_read_only(), image.preferred_block())))
        };
        let exports = images.iter().map(export).collect::<Result<Vec<Arc<Export>>, Error>>()?;
        let events = options.events.clone();
        let log = move |text: &str| events.iter().for_each(|events| events.note(text));
        let server = Server::start(listener, exports.clone(), options.tls.clone(), options.limits, log);
        let server = server.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Error::argument(error.to_string()),
            _ => Error::io(&address, error),
        })?;
        Ok(Service { server, exports, address, uris })
    }

    /// The address that clients reach.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The URIs that clients take, one for each export.
    pub fn uris(&self) -> &[String] {
        &self.uris
    }

    /// The number of clients at this moment.
    pub fn clients(&self) -> usize {
        self.server.clients()
    }

    /// The exports, which know what clients have asked for, also when the service has stopped. What each layer did for that
    /// is in [`Image::statistics`].
    pub fn exports(&self) -> &[Arc<Export>] {
        &self.exports
    }

    /// Accepts no more clients, answers the requests that have arrived, and puts everything on stable storage.
    /// Clients that do not take their answers within `patience` are cut off.
    ///
    /// # Errors
    /// `Io` of the last flush.
    pub fn stop(self, patience: Duration) -> Result<(), Error> {
        self.server.stop(patience).map_err(|error| Error::io(&self.address, error))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("uris", &self.uris).finish_non_exhaustive()
    }
}
