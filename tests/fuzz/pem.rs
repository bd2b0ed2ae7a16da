//! Certificates and keys from Secrets and caBundles, in PEM. What is read of a bundle is written and read again as it
//! was.

#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use pki::bundle::Bundle;
use pki::ca::Ca;
use pki::certified_key::CertifiedKeyPair;
use pki::x509::{CertificateInfo, KEY_USAGE};

fuzz_target!(|pem: &[u8]| {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let bundle = Bundle::read(pem);
    assert!(Bundle::read(bundle.pem().as_bytes()) == bundle);
    for certificate in bundle.iter() {
        if let Ok(info) = CertificateInfo::read(certificate) {
            let _ = (info.check_validity(now), info.extension(KEY_USAGE));
        }
    }
    let _ = (bundle.issued_by_us(), bundle.expired(now));
    // The certificate and its key may be in one file.
    let _ = (Ca::from_pem(pem, pem), CertifiedKeyPair::from_pem(pem, pem));
});
