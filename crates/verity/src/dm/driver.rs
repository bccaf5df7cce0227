//! The driver that was named for the hashing.

use casemate_providers::{Providers, Work};

use crate::Error;

/// Work with the driver that was named for the hash `algorithm`.
///
/// # Errors
/// `Argument` if the driver does not make that hash.
pub(super) fn driven<'a>(work: &Work<'a>, algorithm: &str, driver: Option<&str>) -> Result<Work<'a>, Error> {
    Ok(Work { providers: naming(&work.providers, algorithm, driver)?, ..work.clone() })
}

/// Providers in which the driver that was named makes the hash `algorithm`.
///
/// # Errors
/// `Argument` if the driver does not make that hash.
pub(super) fn naming(
    providers: &Providers,
    algorithm: &str,
    driver: Option<&str>,
) -> Result<Providers, Error> {
    let Some(driver) = driver else { return Ok(providers.clone()) };
    let providers = providers.naming(&[driver]);
    match providers.hash(algorithm)?.driver() == driver {
        true => Ok(providers),
        false => Err(Error::argument(format!("{driver} does not make {algorithm}"))),
    }
}
