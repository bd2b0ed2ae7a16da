//! What the Secret of mode `secret` holds: a certificate that somebody else makes and renews, such as
//! cert-manager. <https://kubernetes.io/docs/concepts/configuration/secret/#tls-secrets>

use super::bundle::Bundle;
use super::cluster::Data;
use super::identity::{BadIdentity, Identity};

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const ANCHORS: &str = "ca.crt";

/// A certificate and those that clients must trust to trust it.
#[derive(Debug, Clone)]
pub struct Given {
    /// What is shown.
    pub identity: Identity,
    /// What clients must trust.
    pub anchors: Bundle,
}

/// Why a Secret gives no certificate.
#[derive(Debug, thiserror::Error)]
pub enum BadSecret {
    /// There is no Secret.
    #[error("there is no Secret with a certificate")]
    Missing,
    /// It lacks a key.
    #[error("the Secret has no `{0}`")]
    NoKey(&'static str),
    /// It tells no authority.
    #[error("the Secret's `{ANCHORS}` has no certificate")]
    NoAnchor,
    /// Its certificate cannot be shown.
    #[error("cannot serve the Secret's `{CHAIN}` with its `{KEY}`")]
    Identity(#[from] BadIdentity),
}

// === impl Given ===

impl Given {
    /// Reads the Secret.
    ///
    /// # Errors
    /// When something is missing in it, or cannot be used.
    pub fn read(data: &Data) -> Result<Self, BadSecret> {
        let get = |key| data.get(key).ok_or(BadSecret::NoKey(key));
        let anchors = Bundle::read(get(ANCHORS)?);
        if anchors.is_empty() {
            return Err(BadSecret::NoAnchor);
        }
        Ok(Self {
            identity: Identity::from_pem(get(CHAIN)?, get(KEY)?)?,
            anchors,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::ca::Ca;
    use crate::certificates::wall_clock;

    fn data() -> Data {
        let ca = Ca::try_new(wall_clock(), Duration::from_secs(60)).unwrap();
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        Data::from([
            (CHAIN.into(), made.cert.pem().into()),
            (KEY.into(), made.signing_key.serialize_pem().into()),
            (ANCHORS.into(), ca.pem().into()),
        ])
    }

    #[test]
    fn a_whole_secret_is_read_and_a_lack_is_named() {
        let given = Given::read(&data()).unwrap();
        assert_eq!(given.anchors, Bundle::read(&data_of(&given)));
        for (key, value, wanted) in [
            (CHAIN, None, "the Secret has no `tls.crt`"),
            (KEY, None, "the Secret has no `tls.key`"),
            (ANCHORS, None, "the Secret has no `ca.crt`"),
            (
                ANCHORS,
                Some(""),
                "the Secret's `ca.crt` has no certificate",
            ),
            (
                KEY,
                Some("junk"),
                "cannot serve the Secret's `tls.crt` with its `tls.key`",
            ),
        ] {
            let mut data = data();
            match value {
                Some(value) => data.insert(key.into(), value.into()),
                None => data.remove(key),
            };
            assert_eq!(Given::read(&data).unwrap_err().to_string(), wanted);
        }
    }

    fn data_of(given: &Given) -> Vec<u8> {
        given.anchors.pem().into_bytes()
    }
}
