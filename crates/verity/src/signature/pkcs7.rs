//! The DER structures of a PKCS#7 signature (RFC 2315 section 9, RFC 5652 section 5).

use der::asn1::{ObjectIdentifier, OctetString, SetOfVec};
use der::{Any, Choice, Sequence, ValueOrd};
use x509_cert::attr::Attributes;
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;

/// id-signedData.
pub(super) const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
/// id-data.
pub(super) const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
/// The attribute that names the type of what is signed.
pub(super) const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
/// The attribute that holds the digest of what is signed.
pub(super) const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");

#[derive(Debug, Sequence)]
pub(super) struct ContentInfo {
    pub(super) content_type: ObjectIdentifier,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    pub(super) content: SignedData,
}

#[derive(Debug, Sequence)]
pub(super) struct SignedData {
    pub(super) version: u8,
    pub(super) digest_algorithms: SetOfVec<AlgorithmIdentifierOwned>,
    pub(super) encapsulated: EncapsulatedContent,
    /// Certificates and revocation lists are skipped: whom to trust is said by the verifier.
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT", constructed = "true", optional = "true")]
    pub(super) certificates: Option<SetOfVec<Any>>,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", constructed = "true", optional = "true")]
    pub(super) crls: Option<SetOfVec<Any>>,
    pub(super) signers: SetOfVec<SignerInfo>,
}

#[derive(Debug, Sequence)]
pub(super) struct EncapsulatedContent {
    pub(super) content_type: ObjectIdentifier,
    /// Absent in a detached signature.
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    pub(super) content: Option<Any>,
}

#[derive(Clone, Debug, Eq, PartialEq, Sequence, ValueOrd)]
pub(super) struct SignerInfo {
    pub(super) version: u8,
    pub(super) signer: SignerId,
    pub(super) digest_algorithm: AlgorithmIdentifierOwned,
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT", constructed = "true", optional = "true")]
    pub(super) signed_attributes: Option<Attributes>,
    pub(super) signature_algorithm: AlgorithmIdentifierOwned,
    pub(super) signature: OctetString,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", constructed = "true", optional = "true")]
    pub(super) unsigned_attributes: Option<Attributes>,
}

/// How a signature names the certificate of its signer.
#[derive(Clone, Debug, Eq, PartialEq, Choice, ValueOrd)]
pub(super) enum SignerId {
    /// By issuer and serial number (version 1).
    IssuerAndSerial(IssuerAndSerial),
    /// By the subject key identifier (version 3).
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT")]
    KeyId(OctetString),
}

#[derive(Clone, Debug, Eq, PartialEq, Sequence, ValueOrd)]
pub(super) struct IssuerAndSerial {
    pub(super) issuer: Name,
    pub(super) serial: SerialNumber,
}
