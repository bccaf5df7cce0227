//! Digests that other implementations made of one message: 300 bytes, byte `i` being `i` modulo 256.

/// The digest in hexadecimal, and who made it.
pub(super) fn of(algorithm: &str) -> Option<(&'static str, &'static str)> {
    KNOWN.iter().find(|(name, ..)| *name == algorithm).map(|(_, digest, source)| (*digest, *source))
}

#[rustfmt::skip]
const KNOWN: &[(&str, &str, &str)] = &[
    ("sha256", "7728ae2f2c36e2aaafbe79ca14c87ae2f89e7c88c4390ecbbf82dce88706958d", "OpenSSL 3.0"),
    ("sha512", "f1dca2eb677b303265b0b9baff0e061202818f35c1470a69bbaa9bb66025e948d90e565e69642506c6213aef3cf9e929357a59da263deb34d1236dbdcda279b3", "OpenSSL 3.0"),
    ("sha1", "bf77ecf143ceb21f1676c34b8d89c8bb3c43cc4e", "OpenSSL 3.0"),
    ("sha224", "0c82e586f274c06fe5393d20f3692908d3a78ff0034e4c221959f75a", "OpenSSL 3.0"),
    ("sha384", "69672aca50c4279e4cdf788380294d7655bc68c7949e273318d60817f3262cff54e8c78ceaae0853e0a7adf36f392d38", "OpenSSL 3.0"),
    ("sha3-224", "fc40ee40f2595a8ced1537bf5fb47d1ca83d6857007056f2b3eaee98", "OpenSSL 3.0"),
    ("sha3-256", "815c06bbeb8520ce61add33a5f47bc558bf00e6361a5640c972d5d4634c58101", "OpenSSL 3.0"),
    ("sha3-384", "47aefea93608f52318d433e3bc58bd296f9a88954a9ab47bd7e462468d59eeece908f5e861ee208a44c361831802f11e", "OpenSSL 3.0"),
    ("sha3-512", "fa288fe9f54b8301e3012051fb1b275fd3f278a281ef149bb878fd322a647d3f51dc24908905550ed4883870c94f8d297f0690f8661b14d8222e9a46eebcbdf6", "OpenSSL 3.0"),
    ("blake2b-160", "0442cf14856eeee477bf0a9261dd7bc1e026709b", "CPython 3.11"),
    ("blake2b-256", "3a486e3fe3ee414853000269ac020030aeef748cb05cd62ba85939ec298ef25c", "CPython 3.11"),
    ("blake2b-384", "65c8d6bcbe61c9de29892f921721acaec46f6cd319f6a455549565a82c067b5f7275fb759cd7f5676a2f2c51067a852f", "CPython 3.11"),
    ("blake2b-512", "d9cf5983dc6b34c0fa1f0226926855ad3eccd2bcdcd8f8053b9a80664d33b5afcc32fd21c70ea14f4ef50ca97c3203c4d1803159f0e01bb6cb1d1c83db52b63c", "CPython 3.11"),
    ("blake2s-128", "da5b5643765571510bcc51e5f1f8c9e2", "CPython 3.11"),
    ("blake2s-160", "a10405a2523133e42cb0c07dfadb9d0eac691ca2", "CPython 3.11"),
    ("blake2s-224", "33616a53f13dc005d9f730f9e12265dcfdb0c6c2383968f373464e1b", "CPython 3.11"),
    ("blake2s-256", "0d273350275ecbbb6d5631973856f57ff39f6d2284b81c3a3e1df16fb5e9711a", "CPython 3.11"),
    ("ripemd160", "91293d6ee016d6e273deee1c55fb5b3891fc55e7", "libgcrypt 1.10"),
    ("whirlpool", "2ff0859e9c6792562536b1fa3e87fd5b97ec70d6f3be0f3439501a348687d0f564c7a35ffff00e86bf1d32967edb0db8ea0ed00ebe75bdcb7b44eb3e11035256", "libgcrypt 1.10"),
    ("sm3", "11f3940f10ce70ef1f7bd8032b0a728b1124e52ce78c048f1090367776feb2e4", "libgcrypt 1.10"),
    ("stribog256", "f8897ff5b09ea753de486f66b925aa2227d6a3695eec8c62602389ea8033ecfb", "libgcrypt 1.10"),
    ("stribog512", "cfa19f54d8cb77189514d4a1ed0313bca503adb25212c00075c4c2b37154dd1b6f3e1c9d997605b128c484b1082bae2d00590f51298ba3ce5d5b78dd52e10633", "libgcrypt 1.10"),
    ("md5", "17b3839204f7b81a93eb2718b1379e6f", "OpenSSL 3.0"),
];
