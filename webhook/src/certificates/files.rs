//! Certificates from two PEM files that somebody else renews, as a mounted Secret's are.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use super::pki::certified_key::{CertifiedKeyError, CertifiedKeyPair};

/// The pause between two looks at the files. Their content is compared: a Secret volume swaps a
/// symlink, which a watch on the files themselves would not see.
/// <https://kubernetes.io/docs/concepts/configuration/secret/#using-secrets-as-files-from-a-pod>
const POLL: Duration = Duration::from_secs(1);

/// A Kubernetes Secret holds 1 MiB at most.
/// <https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-limit>
const MAX_SIZE: u64 = 1 << 20;

/// A certificate file and a key file, and what was last found in them.
#[derive(Debug)]
pub struct Files {
    chain: PathBuf,
    key: PathBuf,
    settled: Look,
}

/// Why two files give no identity.
#[derive(Debug, thiserror::Error)]
pub enum BadFiles {
    /// One cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What they hold cannot be served.
    #[error("cannot serve certificate {} with key {}", .chain.display(), .key.display())]
    Identity {
        /// The certificate file.
        chain: PathBuf,
        /// The key file.
        key: PathBuf,
        /// What is wrong.
        #[source]
        source: CertifiedKeyError,
    },
}

/// What one look at the files found, in a form that can be compared.
type Look = Result<Contents, Unreadable>;

#[derive(Clone, PartialEq, Eq)]
struct Contents {
    chain: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Unreadable {
    path: PathBuf,
    kind: io::ErrorKind,
}

// === impl Files ===

impl Files {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// When they cannot be read, or are no pair that can be served.
    pub fn open(chain: PathBuf, key: PathBuf) -> Result<(Self, CertifiedKeyPair), BadFiles> {
        let settled = look(&chain, &key);
        let files = Self {
            chain,
            key,
            settled,
        };
        let identity = files.identity()?;
        Ok((files, identity))
    }

    /// Waits until the files have changed, and reads the new pair.
    ///
    /// A change counts once two looks in a row found the same, since the two files never change in
    /// one instant: the certificate may be the new one while the key is still the old.
    ///
    /// # Errors
    /// When the change left files that cannot be read or served: told once for each change.
    pub async fn next(&mut self) -> Result<CertifiedKeyPair, BadFiles> {
        let mut previous = self.settled.clone();
        loop {
            sleep(POLL).await;
            let found = look(&self.chain, &self.key);
            if found != self.settled && found == previous {
                self.settled = found;
                return self.identity();
            }
            previous = found;
        }
    }

    fn identity(&self) -> Result<CertifiedKeyPair, BadFiles> {
        let Self {
            chain,
            key,
            settled,
        } = self;
        let contents = settled.as_ref().map_err(|unreadable| BadFiles::Read {
            path: unreadable.path.clone(),
            source: unreadable.kind.into(),
        })?;
        CertifiedKeyPair::from_pem(&contents.chain, &contents.key).map_err(|source| {
            BadFiles::Identity {
                chain: chain.clone(),
                key: key.clone(),
                source,
            }
        })
    }
}

// === impl Contents ===

impl fmt::Debug for Contents {
    /// Shows no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").finish_non_exhaustive()
    }
}

fn look(chain: &Path, key: &Path) -> Look {
    Ok(Contents {
        chain: read(chain)?,
        key: read(key)?,
    })
}

/// Reads a small file. It blocks the runtime for microseconds: a Secret volume is in memory.
fn read(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let read = || {
        let mut contents = Vec::new();
        let size = File::open(path)?
            .take(MAX_SIZE + 1)
            .read_to_end(&mut contents)?;
        if size as u64 > MAX_SIZE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(contents)
    };
    read().map_err(|error: io::Error| Unreadable {
        path: path.to_owned(),
        kind: error.kind(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::generate_simple_self_signed;
    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    /// Longer than a change takes to be seen.
    const A_WHILE: Duration = Duration::from_secs(60);

    struct Mount(TempDir);

    struct Pem {
        chain: String,
        key: String,
    }

    impl Mount {
        fn new(pem: &Pem) -> Self {
            let mount = Self(tempfile::tempdir().unwrap());
            mount.write(&pem.chain, &pem.key);
            mount
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, chain: &str, key: &str) {
            fs::write(self.path("tls.crt"), chain).unwrap();
            fs::write(self.path("tls.key"), key).unwrap();
        }

        fn open(&self) -> Result<(Files, CertifiedKeyPair), BadFiles> {
            Files::open(self.path("tls.crt"), self.path("tls.key"))
        }
    }

    fn pem() -> Pem {
        let made = generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        Pem {
            chain: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    fn is_of(identity: &CertifiedKeyPair, pem: &Pem) -> bool {
        let wanted = CertifiedKeyPair::from_pem(pem.chain.as_bytes(), pem.key.as_bytes()).unwrap();
        *identity == wanted
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_that_was_replaced_is_read() {
        let (old, new) = (pem(), pem());
        let mount = Mount::new(&old);
        let (mut files, first) = mount.open().unwrap();
        assert!(is_of(&first, &old));
        assert!(timeout(A_WHILE, files.next()).await.is_err(), "no change");
        mount.write(&new.chain, &new.key);
        let next = timeout(A_WHILE, files.next()).await.unwrap().unwrap();
        assert!(is_of(&next, &new));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_half_done_is_waited_for() {
        let (old, new) = (pem(), pem());
        let mount = Mount::new(&old);
        let (mut files, _) = mount.open().unwrap();
        mount.write(&new.chain, &old.key);
        let half = timeout(POLL + POLL / 2, files.next()).await;
        assert!(half.is_err(), "one look is not enough");
        mount.write(&new.chain, &new.key);
        let next = timeout(A_WHILE, files.next()).await.unwrap().unwrap();
        assert!(is_of(&next, &new));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bad_change_is_told_once_and_a_good_one_after_it_is_read() {
        let (old, new) = (pem(), pem());
        let bad = [
            (new.chain.as_str(), old.key.as_str(), "does not belong"),
            ("", &new.key, "has no certificate"),
            (&new.chain, "no key", "no valid PEM key"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                &new.key,
                "no X.509",
            ),
        ];
        for (chain, key, wanted) in bad {
            let mount = Mount::new(&old);
            let (mut files, _) = mount.open().unwrap();
            mount.write(chain, key);
            let error = timeout(A_WHILE, files.next()).await.unwrap().unwrap_err();
            let told = format!("{:#}", anyhow::Error::from(error));
            assert!(told.contains("tls.crt with key "), "{told}");
            assert!(told.contains(wanted), "{told}: {wanted}");
            assert!(timeout(A_WHILE, files.next()).await.is_err(), "told twice");
            mount.write(&new.chain, &new.key);
            assert!(timeout(A_WHILE, files.next()).await.unwrap().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_vanish_are_told_and_found_again() {
        let (old, new) = (pem(), pem());
        let mount = Mount::new(&old);
        let (mut files, _) = mount.open().unwrap();
        fs::remove_file(mount.path("tls.crt")).unwrap();
        let error = timeout(A_WHILE, files.next()).await.unwrap().unwrap_err();
        assert!(error.to_string().ends_with("tls.crt"), "{error}");
        mount.write(&new.chain, &new.key);
        assert!(timeout(A_WHILE, files.next()).await.unwrap().is_ok());
    }

    #[test]
    fn no_key_is_written_anywhere() {
        let pem = pem();
        let (files, _) = Mount::new(&pem).open().unwrap();
        assert!(format!("{files:?}").ends_with("settled: Ok(Contents { .. }) }"));
    }

    #[test]
    fn a_bad_start_names_the_file() {
        let missing = Files::open("/nowhere/tls.crt".into(), "/nowhere/tls.key".into());
        let told = format!("{:#}", anyhow::Error::from(missing.unwrap_err()));
        assert_eq!(told, "cannot read /nowhere/tls.crt: entity not found");
    }
}
