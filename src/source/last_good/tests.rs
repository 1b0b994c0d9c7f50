//! Tests of reading back, and of refusals.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use gatepost_base::clock::{Moment, suspended_time};
use gatepost_config::{LoadCache, NO_PAUSE};

const SECRET: &str = "-----BEGIN PRIVATE KEY-----";

fn kept(name: &str) -> LastGoodDocuments {
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: {name}}}\n\
         externalAdmissionHooks: [{{name: one, rules: [], clientConfig: {{url: 'grpcs://h:1', caFile: ca.pem}}}}]\n"
    );
    let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
    let authority = rcgen::generate_simple_self_signed(["one".to_owned()]).unwrap().cert.pem();
    let read = |_: &str| Ok(authority.clone().into_bytes());
    LoadCache::default().load_whole(&files, &read, NO_PAUSE).unwrap().kept
}

fn now() -> BootMoment {
    BootMoment::of(Moment::now(suspended_time)).unwrap()
}

fn written(folder: &Path) -> (LastGoodFile, PathBuf) {
    let path = folder.join("last-good");
    let file = LastGoodFile::new(path.clone(), "/etc/gatepost".into());
    file.write(&kept("a"), "d1", "sha256:d1", now()).unwrap();
    (file, path)
}

#[test]
fn last_good_is_read_as_written_by_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = written(folder.path());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let found = file.read().unwrap().unwrap();
    assert_eq!((&*found.digest, &*found.revision), ("d1", "sha256:d1"));
    assert!(found.age.is_some_and(|age| age < Duration::from_secs(60)), "{:?}", found.age);
    assert!(found.written.elapsed().unwrap() < Duration::from_secs(60));
    let [(document, references)] = &found.documents[..] else { panic!("{found:?}") };
    assert_eq!(document.name, "a.yaml");
    assert!(references["ca.pem"].starts_with(b"-----BEGIN CERTIFICATE"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    // The next one takes its place, and a half written one of a crash is no hindrance.
    fs::write(path.with_extension("new"), "half").unwrap();
    file.write(&kept("b"), "d2", "2", now()).unwrap();
    assert_eq!(file.read().unwrap().unwrap().digest, "d2");
    assert!(LastGoodFile::new(folder.path().join("absent"), String::new()).read().unwrap().is_none());
}

#[test]
fn torn_confirmation_of_last_good_has_no_age() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = written(folder.path());
    let length = fs::metadata(&path).unwrap().len();
    let earlier = BootMoment { nanos: now().nanos - 3_000_000_000, ..now() };
    file.confirm(earlier).unwrap();
    let age = file.read().unwrap().unwrap().age.unwrap();
    assert!(age >= Duration::from_secs(3) && age < Duration::from_secs(60), "{age:?}");
    file.confirm(BootMoment { boot: "0".repeat(36), nanos: 1 }).unwrap();
    assert_eq!(file.read().unwrap().unwrap().age, None, "of another start of the machine");
    assert_eq!(fs::metadata(&path).unwrap().len(), length);

    let whole = fs::read_to_string(&path).unwrap();
    let torn = whole.replacen(&"0".repeat(36), &"1".repeat(36), 1);
    fs::write(&path, torn).unwrap();
    assert_eq!(file.read().unwrap().unwrap().age, None);
}

#[test]
fn invalid_last_good_file_is_reported_and_unused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = written(folder.path());
    let good = fs::read(&path).unwrap();
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let why = file.read().unwrap_err().to_string();
        assert!(!why.contains(SECRET), "{why}");
        why
    };
    for cut in 0..good.len() {
        // Every beginning of it: most are cut in the body, and recognized by length.
        if cut < 400 || cut % 97 == 0 {
            let why = message(&good[..cut]);
            assert!(
                why.contains("is truncated or damaged") || cut < MAGIC.len() && why.contains("no last good"),
                "{cut}: {why}"
            );
        }
    }
    let changed = |from: &str, to: &str| String::from_utf8(good.clone()).unwrap().replacen(from, to, 1).into_bytes();
    assert!(message(&changed("sha256:d1", "sha256:d2")).contains("its digest is another one"));
    assert!(message(&changed("configuration 1", "configuration 2")).contains("by a later gatepost (its form is 2"));
    assert!(message(b"kind: List\n").contains("holds no last good configuration"));
    assert!(message(b"").contains("holds no last good configuration"));
    fs::write(&path, &good).unwrap();
    for mode in [0o644, 0o640, 0o602] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("chmod 0600"), "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let other = LastGoodFile::new(path.clone(), "/etc/other".into()).read().unwrap_err().to_string();
    assert!(other.contains("is of /etc/gatepost, and the configuration is read from /etc/other"), "{other}");
    assert!(file.read().is_ok(), "it was good all the time");
    for wrong in [folder.path().to_owned(), "/dev/null".into()] {
        let why = LastGoodFile::new(wrong, String::new()).read().unwrap_err().to_string();
        assert!(why.contains("cannot be read") || why.contains("may be read or written by others"), "{why}");
    }
}

#[test]
fn last_good_file_that_cannot_be_written_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = written(folder.path());
    // The name beside it is a folder with something in it: nobody can make a file of it.
    fs::create_dir_all(folder.path().join("last-good.new/x")).unwrap();
    assert!(file.write(&kept("b"), "d2", "2", now()).is_err());
    assert_eq!(file.read().unwrap().unwrap().digest, "d1");
    fs::remove_dir_all(folder.path().join("last-good.new")).unwrap();
    // A link there is replaced and not followed.
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, folder.path().join("last-good.new")).unwrap();
    file.write(&kept("b"), "d2", "2", now()).unwrap();
    assert_eq!(
        (fs::read_to_string(&victim).unwrap(), file.read().unwrap().unwrap().digest),
        ("precious".into(), "d2".into())
    );
    assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
}
