//! Serves an image over NBD until its standard input ends, and keeps what clients write in a file: serve IMAGE OVERLAY SOCKET

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use casemate::nbd::Listener;
use casemate::serve::ServeOptions;
use casemate::{Access, Error, Image, Providers};

fn main() -> Result<(), Error> {
    let [image, overlay, socket] = arguments()?;
    let image = Image::open(image, Access::Read)?;
    let image = image.overlay(Path::new(&overlay), &Providers::default())?;
    let service = image.serve(Listener::unix(Path::new(&socket))?, &ServeOptions::default())?;
    println!("{}", service.uris()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{} requests", service.exports()[0].statistics().reads);
    service.stop(Duration::from_secs(10))
}

fn arguments<const N: usize>() -> Result<[String; N], Error> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    all.try_into().map_err(|_| Error::argument("serve IMAGE OVERLAY SOCKET"))
}
