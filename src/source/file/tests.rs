use std::os::unix::fs::symlink;

use super::*;

fn names(contents: &Contents) -> Vec<&str> {
    contents.files.iter().map(|file| &*file.name).collect()
}

/// Writes a file that was last changed a minute ago.
fn settled(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    age(path);
}

fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
}

#[test]
fn a_folder_is_its_documents_in_the_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.yaml", "a.json", "c.yml", "README.md", ".hidden.yaml", "d.yaml~"] {
        settled(&folder.path().join(name), name);
    }
    fs::create_dir(folder.path().join("e.yaml")).unwrap();
    let contents = FileSource::new(folder.path()).read(Duration::ZERO).unwrap();
    assert_eq!(names(&contents), ["a.json", "b.yaml", "c.yml"]);
    assert_eq!(contents.files[1].bytes, "b.yaml");
}

#[test]
fn single_file_is_a_source() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("only.conf");
    settled(&path, "kind: x");
    assert_eq!(names(&FileSource::new(path).read(Duration::ZERO).unwrap()), ["only.conf"]);
}

#[test]
fn unreadable_file_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let error = FileSource::new(&absent).read(Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("absent") && error.contains("No such file"), "{error}");

    symlink("nowhere", folder.path().join("dangling.yaml")).unwrap();
    let error = FileSource::new(folder.path()).read(Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("dangling.yaml"), "{error}");
}

#[test]
fn changed_file_with_the_same_mtime_must_settle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    settled(&path, "whole");
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    let source = FileSource::new(folder.path());
    assert_eq!(source.read(Duration::ZERO).unwrap().files[0].bytes, "whole");
    fs::write(&path, "").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    let began = Instant::now();
    assert_eq!(source.read(Duration::ZERO).unwrap().files[0].bytes, "");
    assert!(began.elapsed() >= SETTLE, "read at once");
}

#[test]
fn a_file_written_a_moment_ago_is_given_time_to_become_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "whole").unwrap();
    let stamp = Stamp::of(path);
    let written = fs::metadata(&stamp.path).unwrap().modified().unwrap();
    assert!(!stamp.has_settled(written + SETTLE / 2));
    assert!(stamp.has_settled(written + SETTLE));
    assert!(stamp.has_settled(written - SETTLE), "a skewed clock does not block reads");
    let contents = FileSource::new(folder.path()).read(Duration::from_secs(5)).unwrap();
    assert_eq!(contents.files[0].bytes, "whole");
}

#[test]
fn mounted_config_map_swap_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, text) in [("..1", "one"), ("..2", "two")] {
        fs::create_dir(at(version)).unwrap();
        settled(&at(version).join("a.yaml"), text);
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/a.yaml", at("a.yaml")).unwrap();
    let source = FileSource::new(folder.path());
    let one = source.read(Duration::ZERO).unwrap();
    assert_eq!((names(&one), &*one.files[0].bytes), (vec!["a.yaml"], &b"one"[..]));
    assert_eq!(source.read(Duration::ZERO).unwrap(), one, "nothing changed");

    symlink("..2", at("..new")).unwrap();
    fs::rename(at("..new"), at("..data")).unwrap();
    let two = source.read(Duration::ZERO).unwrap();
    assert_eq!(&*two.files[0].bytes, b"two");
    assert_ne!(one.digest, two.digest);
}

#[test]
fn rotated_certificate_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let entry = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: test}\n\
                 externalAdmissionHooks:\n- name: a.example.com\n  rules: []\n  \
                 clientConfig: {url: 'grpcs://a.example.com:1', caFile: ca.pem}\n";
    settled(&folder.path().join("a.yaml"), entry);
    let source = FileSource::new(folder.path());
    let read = || source.read(Duration::from_secs(5)).unwrap();

    let absent = read();
    assert!(matches!(absent.references.get("ca.pem"), Some(Err((io::ErrorKind::NotFound, _)))), "{absent:?}");
    assert_eq!(read(), absent, "nothing changed");

    let pem = folder.path().join("ca.pem");
    settled(&pem, "one");
    let one = read();
    assert_eq!(one.reference("ca.pem").unwrap(), b"one");
    settled(&pem, "two");
    let two = read();
    assert_eq!((one.files == two.files, one.digest == two.digest, absent.digest == one.digest), (true, false, false));
    assert_eq!(read(), two, "nothing changed");

    settled(&folder.path().join("a.yaml"), "kind: Other");
    assert!(read().references.is_empty(), "nobody refers to it any more");
}
