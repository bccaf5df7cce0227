//! The options that say how a tree is made.

use casemate::fsverity::{Algorithm, Parameters};
use casemate::{Error, Providers};

use crate::context::Context;
use crate::size::bytes;

/// How the tree is made.
#[derive(clap::Args, Clone, Debug)]
pub struct TreeArgs {
    /// The hash algorithm: sha256 or sha512, or its number (1 or 2) [default: sha256].
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    pub hash_alg: Option<Algorithm>,
    /// The size of data and tree blocks in bytes: a power of two.
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = block_size)]
    pub block_size: u32,
    /// The salt in hex, at most 32 bytes.
    #[arg(long, value_name = "HEX", value_parser = hex)]
    pub salt: Option<Hex>,
    /// Hash blocks with this driver, even if the policy would not choose it ("casemate providers" lists them).
    #[arg(long, value_name = "DRIVER")]
    pub provider: Option<String>,
}

/// Bytes given in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl TreeArgs {
    /// The parameters, with another hash algorithm if one is known from elsewhere.
    pub fn parameters(&self, algorithm: Option<Algorithm>) -> Result<Parameters, Error> {
        let salt = self.salt.as_ref().map_or(&[][..], |salt| &salt.0);
        let algorithm = algorithm.or(self.hash_alg).unwrap_or(Algorithm::Sha256);
        Parameters::new(algorithm, self.block_size, salt)
    }

    /// Refuses digests of another algorithm than the one that is given.
    pub fn check_algorithm(&self, found: Algorithm) -> Result<(), Error> {
        match self.hash_alg.filter(|given| *given != found) {
            Some(given) => {
                let text = format!("its digests are of {}, not {}", found.name(), given.name());
                Err(Error::argument(text))
            }
            None => Ok(()),
        }
    }

    /// Drivers for hashing trees of these parameters.
    pub fn providers(&self, parameters: &Parameters, context: &Context) -> Result<Providers, Error> {
        context.hashing(parameters.algorithm().name(), self.provider.as_deref())
    }
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    let numbered = text.parse().ok().and_then(Algorithm::numbered);
    Algorithm::named(text).or(numbered).ok_or_else(|| {
        let names = Algorithm::ALL.map(Algorithm::name);
        format!("unknown hash algorithm; available are {}", names.join(", "))
    })
}

fn block_size(text: &str) -> Result<u32, String> {
    let size = bytes::<u32>(text).ok().filter(|size: &u32| size.is_power_of_two());
    size.ok_or_else(|| "must be a power of 2".to_owned())
}

/// Reads hex digits.
pub fn hex(text: &str) -> Result<Hex, String> {
    casemate::hex::decode(text).map(Hex).ok_or_else(|| "not a valid hex string".to_owned())
}
