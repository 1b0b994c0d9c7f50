//! Store of pairs and authorities: a Secret, or a folder. Reads and writes files; the state in them, and its changes,
//! are in `stored`.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use gatepost_base::files;
use gatepost_kube_support::{KubeClient, MANAGED_BY};
use serde_json::{Map, Value, json};

use super::{
    CertificatesError, MANAGER,
    stored::{Files, NAMES, StoredPairs},
};
use crate::command::replace_file;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Store of pairs and authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// A Secret of the cluster, by namespace and name.
    Secret { namespace: String, name: String },
    /// A folder on this machine.
    Folder(PathBuf),
}

/// Version of the state that was read: a write never replaces a later state.
#[derive(Debug)]
pub(super) enum Version {
    /// The Secret does not exist.
    Absent,
    /// The Secret's resourceVersion.
    Revision(String),
    /// The folder's lock, which excludes other writers.
    Locked(#[expect(dead_code, reason = "held for its lock")] File),
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret { namespace, name } => write!(f, "Secret {namespace}/{name}"),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

impl Store {
    /// Reads the stored state. A Secret requires the client of its cluster.
    pub(super) async fn read(&self, client: Option<&KubeClient>) -> Result<(StoredPairs, Version), CertificatesError> {
        let (files, version) = match self {
            Self::Folder(path) => read_folder(path).map_err(|error| self.failed("read", &error))?,
            Self::Secret { namespace, name } => {
                let client = client.ok_or(CertificatesError::NoCluster)?;
                let secret = client.find(&secrets(namespace), name).await?;
                let version = match secret.as_ref().map(|secret| secret["metadata"]["resourceVersion"].as_str()) {
                    Some(Some(revision)) => Version::Revision(revision.to_owned()),
                    Some(None) => return Err(CertificatesError::Store(format!("{self} has no resourceVersion"))),
                    None => Version::Absent,
                };
                (secret.map(|secret| decoded(&secret)).unwrap_or_default(), version)
            }
        };
        let foreign = |foreign| CertificatesError::Store(format!("{self} {foreign}"));
        Ok((StoredPairs::read(&files).map_err(foreign)?, version))
    }

    /// Returns true if the stored state is still at this version.
    pub(super) async fn is_at(&self, client: &KubeClient, version: &Version) -> Result<bool, CertificatesError> {
        let Version::Revision(read) = version else { return Ok(matches!(self, Self::Folder(_))) };
        Ok(matches!(self.read(Some(client)).await?.1, Version::Revision(now) if now == *read))
    }

    /// Writes the files if the stored state is still at this version.
    pub(super) async fn write(
        &self,
        client: Option<&KubeClient>,
        version: &Version,
        files: &Files,
    ) -> Result<(), CertificatesError> {
        let (namespace, name) = match self {
            Self::Folder(path) => {
                return write_folder(path, files).map_err(|error| self.failed("write", &error));
            }
            Self::Secret { namespace, name } => (namespace, name),
        };
        let client = client.ok_or(CertificatesError::NoCluster)?;
        let manager = format!("fieldManager={MANAGER}&fieldValidation=Strict");
        let mut data = encoded(files);
        if let Version::Revision(revision) = version {
            let patch = json!({"metadata": {"resourceVersion": revision}, "data": data});
            let path = format!("{}/{name}?{manager}", secrets(namespace));
            return Ok(client.patch(&path, "application/merge-patch+json", &patch).await?);
        }
        data.retain(|_, value| !value.is_null());
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data,
            "metadata": {"name": name, "namespace": namespace, "labels": {MANAGED_BY.0: MANAGED_BY.1}}});
        client.create(&format!("{}?{manager}", secrets(namespace)), &secret).await?;
        Ok(())
    }

    fn failed(&self, what: &str, error: &io::Error) -> CertificatesError {
        CertificatesError::Store(format!("cannot {what} {self}: {error}"))
    }
}

fn secrets(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets")
}

/// Returns our files in a Secret.
fn decoded(secret: &Value) -> BTreeMap<String, String> {
    let text = |name: &str| {
        let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
        Some((name.to_owned(), String::from_utf8(bytes).ok()?))
    };
    NAMES.into_iter().filter_map(text).collect()
}

fn encoded(files: &Files) -> Map<String, Value> {
    let value = |text: &Option<String>| text.as_ref().map_or(Value::Null, |text| json!(STANDARD.encode(text)));
    files.iter().map(|(name, text)| ((*name).to_owned(), value(text))).collect()
}

fn read_folder(folder: &Path) -> io::Result<(BTreeMap<String, String>, Version)> {
    fs::create_dir_all(folder)?;
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join(".lock"))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("another `gatepost certificates` is at work there"),
        TryLockError::Error(error) => error,
    })?;
    let mut files = BTreeMap::new();
    for name in NAMES {
        match files::read(&folder.join(name), MAX_FILE_BYTES) {
            Ok(bytes) => drop(String::from_utf8(bytes).map(|text| files.insert(name.to_owned(), text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok((files, Version::Locked(lock)))
}

/// Writes each file by rename, in order. A reader that finds a certificate with another one's key rejects both, and
/// retries.
fn write_folder(folder: &Path, files: &Files) -> io::Result<()> {
    let written = NAMES.into_iter().filter_map(|name| Some((name, files.get(name)?)));
    written.into_iter().try_for_each(|(name, text)| write_file(folder, name, text.as_deref()))
}

/// Writes or removes one file.
fn write_file(folder: &Path, name: &str, text: Option<&str>) -> io::Result<()> {
    let path = folder.join(name);
    let Some(text) = text else {
        if !path.try_exists()? {
            return Ok(());
        }
        // A power failure must not undo earlier writes while it keeps this removal.
        File::open(folder)?.sync_all()?;
        return fs::remove_file(&path);
    };
    replace_file(&path, text.as_bytes(), if name.ends_with(".key") { 0o600 } else { 0o644 }, None)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::PermissionsExt,
        slice,
        time::{Duration, SystemTime},
    };

    use super::{
        super::stored::{CertificateSpec, Observation, Step, issue, step},
        *,
    };

    #[tokio::test]
    async fn certificates_in_a_folder_have_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Folder(folder.path().join("tls"));
        let (stored, version) = store.read(None).await.unwrap();
        assert_eq!(stored, StoredPairs::default());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let pair = || issue(&["a.b.svc".to_owned()], Duration::from_secs(3600), now).unwrap();
        let stored = stored.issued(pair(), now).prepared(pair());
        store.write(None, &version, &stored.files()).await.unwrap();
        let failure = store.read(None).await.unwrap_err().to_string();
        assert!(failure.contains("another `gatepost certificates`"), "{failure}");
        drop(version);
        let (read, version) = store.read(None).await.unwrap();
        assert_eq!(read, stored);

        let mode =
            |name: &str| fs::metadata(folder.path().join("tls").join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode("tls.key"), mode("next.key"), mode("tls.crt")], [0o600, 0o600, 0o644]);
        let promoted = stored.promoted(now);
        store.write(None, &version, &promoted.files()).await.unwrap();
        drop(version);
        assert_eq!(store.read(None).await.unwrap().0, promoted);
        assert!(!folder.path().join("tls/next.key").exists());
        fs::remove_file(folder.path().join("tls/tls-ca.crt")).unwrap();
        let failure = store.read(None).await.unwrap_err().to_string();
        assert!(failure.contains("has not made"), "{failure}");
    }

    #[tokio::test]
    async fn certificates_survive_a_crash_between_two_files() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let pair = || issue(&["a.b.svc".to_owned()], Duration::from_secs(3600), now).unwrap();
        let (settle, seen) = (Duration::from_secs(30), Observation::default());
        let wanted = CertificateSpec { names: vec!["a.b.svc".to_owned()], settle, renew: false };
        let before = StoredPairs::default().issued(pair(), now).prepared(pair()).trusted(now);
        let [first, second] = [&before.current, &before.next].map(|stored| stored.clone().unwrap().pair);
        let late = now + settle;
        let after = before.promoted(late).files();
        for written in 0..=NAMES.len() {
            let folder = tempfile::tempdir().unwrap();
            write_folder(folder.path(), &before.files()).unwrap();
            for name in &NAMES[..written] {
                write_file(folder.path(), name, after[name].as_deref()).unwrap();
            }
            let store = Store::Folder(folder.path().to_owned());
            // Steps once the crash is over.
            let mut at = late;
            loop {
                let (stored, version) = store.read(None).await.unwrap();
                assert!(stored.bundle().contains(&first.authority), "a replica may still serve it: {written}");
                let next = match step(&stored, &wanted, seen, at) {
                    Step::Rest(_) if stored.next.is_none() => break,
                    Step::Rest(rest) => {
                        at += rest;
                        continue;
                    }
                    Step::Trust => stored.trusted(at),
                    Step::Promote => stored.promoted(at),
                    other => panic!("{other:?} after {written} files"),
                };
                store.write(None, &version, &next.files()).await.unwrap();
            }
            let stored = store.read(None).await.unwrap().0;
            assert_eq!(stored.current.unwrap().pair, second, "after {written} files");
            assert_eq!(stored.former, slice::from_ref(&first.authority), "after {written} files");
        }
    }

    #[test]
    fn certificates_in_a_secret_are_decoded_as_encoded() {
        let files: Files = [("tls.crt", Some("certificate".to_owned())), ("next.crt", None)].into();
        let data = encoded(&files);
        assert_eq!(data["next.crt"], Value::Null, "a merge patch removes it");
        let read = decoded(&json!({"data": {"tls.crt": data["tls.crt"], "other": "AA==", "ca.crt": "no base64!"}}));
        assert_eq!(read, [("tls.crt".to_owned(), "certificate".to_owned())].into());
    }
}
