//! Certificates from two PEM files that somebody else renews, as a mounted Secret's are.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use super::{BadIdentity, Identity};

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
        source: BadIdentity,
    },
}

/// What one look at the files found, in a form that can be compared.
type Look = Result<Contents, Unreadable>;

#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub fn open(chain: PathBuf, key: PathBuf) -> Result<(Self, Identity), BadFiles> {
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
    pub async fn next(&mut self) -> Result<Identity, BadFiles> {
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

    fn identity(&self) -> Result<Identity, BadFiles> {
        let Self {
            chain,
            key,
            settled,
        } = self;
        let contents = settled.as_ref().map_err(|unreadable| BadFiles::Read {
            path: unreadable.path.clone(),
            source: unreadable.kind.into(),
        })?;
        Identity::from_pem(&contents.chain, &contents.key).map_err(|source| BadFiles::Identity {
            chain: chain.clone(),
            key: key.clone(),
            source,
        })
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
