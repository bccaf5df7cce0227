//! Key material that the crates of cold ciphers keep is wiped when it is dropped. Each has this as a feature, which
//! is off where nobody asks for it.

use zeroize::ZeroizeOnDrop;

fn wiped<T: ZeroizeOnDrop>() {}

#[test]
fn round_keys_are_wiped() {
    wiped::<aes::Aes128>();
    wiped::<aes::Aes256>();
    wiped::<aria::Aria256>();
    wiped::<blowfish::Blowfish>();
    wiped::<camellia::Camellia256>();
    wiped::<cast5::Cast5>();
    wiped::<cast6::Cast6>();
    wiped::<des::TdesEde3>();
    wiped::<serpent::Serpent>();
    wiped::<sm4::Sm4>();
    wiped::<twofish::Twofish>();
}
