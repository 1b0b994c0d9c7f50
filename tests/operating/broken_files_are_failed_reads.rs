//! Any damage to the files of a configuration: it is named, nothing half is put in force, and once they are whole
//! again, so is the configuration.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::front::until;
use crate::support::{
    gate::{document, hook},
    scripted_hook::{Script, ScriptedHook},
    sidecar::Configured,
};
use gatepost::source::{FileSource, READ_TIMEOUT, ReadError};

/// Breakage of the configuration's file, with the words and the kind that report it.
type Breakage = (&'static str, fn(&Path), &'static str, &'static str);

/// Each takes the place of `gatepost.yaml`. None minds who asks: root reads what has no permissions.
const BREAKAGES: [Breakage; 4] = [
    (
        "a link to itself",
        |path| {
            fs::remove_file(path).unwrap();
            symlink(path, path).unwrap();
        },
        "Too many levels of symbolic links",
        "unreadable",
    ),
    (
        "a link to nothing",
        |path| {
            fs::remove_file(path).unwrap();
            symlink("nowhere", path).unwrap();
        },
        "No such file or directory",
        "unreadable",
    ),
    (
        "a pipe, which would be waited for without end",
        |path| {
            // In one step: an empty folder between two would be a configuration of its own, and a wrong one.
            let pipe = path.with_file_name("pipe");
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            fs::rename(pipe, path).unwrap();
        },
        "is not a regular file",
        "not_a_file",
    ),
    (
        "a folder that has vanished",
        |path| fs::remove_dir_all(path.parent().unwrap()).unwrap(),
        "No such file or directory",
        "unreadable",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn missing_file_is_named_and_the_last_good_configuration_stays() {
    for (name, break_it, words, kind) in BREAKAGES {
        let a = ScriptedHook::start(Script::Deny("no")).await;
        let entry = hook("a.example.com", &a.url(), "");
        let configured = Configured::start(std::slice::from_ref(&entry));
        let (current, folder) = (&configured.running.current, configured.folder.path());
        break_it(&folder.join("gatepost.yaml"));
        until(name, || configured.running.health.status.failed_read.get().is_some()).await;
        let failed = configured.running.health.status.failed_read.get().expect(name);
        assert!(failed.error.contains(words), "{name}: {failed:?}");
        let text = configured.running.metrics.render().unwrap();
        assert!(text.contains(&format!("gatepost_config_reads_total{{outcome=\"failed_{kind}\"}} ")), "{name}: {text}");
        assert!(!text.contains(&format!("outcome=\"failed_{kind}\"}} 0\n")), "{name}: {text}");
        let before = current.load();
        assert_eq!((before.number, before.hooks.len()), (1, 1), "{name}: what was in force stays");
        assert_eq!(
            configured.running.health.status.rejected.get(),
            None,
            "{name}: it was not read, so it is not wrong"
        );

        let since = Instant::now();
        until("its age grows", || {
            current.freshness().age(since + Duration::from_millis(1)).is_some_and(|age| !age.is_zero())
        })
        .await;
        fs::create_dir_all(folder).unwrap();
        let _ = fs::remove_file(folder.join("gatepost.yaml"));
        configured.write(&document(&[entry, hook("b.example.com", &a.url(), "")]));
        until("it is whole again", || current.load().hooks.len() == 2).await;
        assert_eq!(configured.running.health.status.failed_read.get(), None, "{name}");
        tokio::task::spawn_blocking(|| drop(configured)).await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn garbage_in_a_file_is_rejected_and_never_applied() {
    let a = ScriptedHook::start(Script::Allow).await;
    let entry = hook("a.example.com", &a.url(), "");
    let configured = Configured::start(std::slice::from_ref(&entry));
    let current = &configured.running.current;
    let before = current.load();
    let whole = document(std::slice::from_ref(&entry));
    let halves = [&whole[..whole.len() / 2], "\0\u{1}\u{2}", "[[[[", "kind: Pod", "- a\n- b", "a: &a [*a, *a]"];
    for garbage in halves {
        let last = configured.running.health.status.rejected.get();
        configured.write(garbage);
        until(garbage, || {
            configured.running.health.status.rejected.get().is_some()
                && configured.running.health.status.rejected.get() != last
        })
        .await;
        assert!(std::sync::Arc::ptr_eq(&before, &current.load()), "{garbage:?}");
        assert_eq!(configured.running.health.status.failed_read.get(), None, "{garbage:?} can be read");
    }
    tokio::task::spawn_blocking(|| drop(configured)).await.expect("stops");
}

/// As `helm template … > gatepost.yaml` does it: emptied at the start, written at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn file_emptied_for_a_while_switches_nothing_off() {
    let a = ScriptedHook::start(Script::Deny("no")).await;
    let entry = hook("a.example.com", &a.url(), "");
    let configured = Configured::start(std::slice::from_ref(&entry));
    let (current, path) = (&configured.running.current, configured.folder.path().join("gatepost.yaml"));
    let before = current.load();
    OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    until("it is reported", || configured.running.health.status.rejected.get().is_some()).await;
    let message = configured.running.health.status.rejected.get().unwrap().problems[0].to_string();
    assert!(message.starts_with("gatepost.yaml: holds no document, which "), "{message}");
    let rejected_at = Instant::now();
    until("it was read again", || current.freshness().age(rejected_at).is_some_and(|age| age.is_zero())).await;
    assert!(std::sync::Arc::ptr_eq(&before, &current.load()), "the hook is asked as before");
    fs::write(&path, document(std::slice::from_ref(&entry))).unwrap();
    until("it is whole again", || configured.running.health.status.rejected.get().is_none()).await;
    assert!(std::sync::Arc::ptr_eq(&before, &current.load()), "and nothing had to change");

    // A folder whose last file goes is no configuration without hooks, either.
    fs::remove_file(&path).unwrap();
    until("it is reported", || configured.running.health.status.rejected.get().is_some()).await;
    assert!(configured.asks("a.example.com"));
    configured.write(&document(&["  []\n".to_owned()]));
    until("no hooks were written", || current.load().hooks.is_empty()).await;
    assert_eq!(
        (configured.running.health.status.rejected.get(), configured.running.health.status.pending_confirmation.get()),
        (None, None)
    );
    configured.write(&document(std::slice::from_ref(&entry)));
    until("it is back", || configured.hook("a.example.com").is_some()).await;
    assert!(configured.asks("a.example.com"), "proven a moment ago");
    tokio::task::spawn_blocking(|| drop(configured)).await.expect("stops");
}

#[test]
fn file_being_written_is_not_read_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    let line = "0123456789abcdef\n".repeat(64);
    let (whole, done) = (line.repeat(40), AtomicBool::new(false));
    // A machine with much to do may stop the writer for longer than a file must have been at rest: that cannot be
    // distinguished from a file that is complete.
    let (stopped, rest) = (AtomicBool::new(false), Duration::from_millis(20));
    fs::write(&path, &whole).unwrap();
    let source = FileSource::new(folder.path());
    thread::scope(|scope| {
        // As careless people do it: into the file itself, bit by bit, again and again.
        scope.spawn(|| {
            for _ in 0..6 {
                let mut last = Instant::now();
                let mut file = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
                for _ in 0..40 {
                    file.write_all(line.as_bytes()).unwrap();
                    // From write to write, so that no moment is missed in which this thread was kept from the core.
                    let now = Instant::now();
                    stopped.fetch_or(now - last > rest, Ordering::Relaxed);
                    last = now;
                    thread::sleep(Duration::from_millis(2));
                }
                drop(file);
                thread::sleep(Duration::from_millis(120));
            }
            done.store(true, Ordering::Release);
        });
        let (mut read, mut halves) = (0, 0);
        while !done.load(Ordering::Acquire) {
            match source.read(Duration::from_millis(40)) {
                Ok(contents) if contents.files[0].bytes.len() < whole.len() => halves += 1,
                Ok(_) => read += 1,
                Err(ReadError::Unsettled { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert!(read > 0, "it came to rest in between");
        assert!(halves == 0 || stopped.load(Ordering::Relaxed), "{halves} times half a file");
    });
    assert_eq!(source.read(READ_TIMEOUT).unwrap().files[0].bytes, whole.as_bytes());
}

/// Puts a new version in the place of a mounted ConfigMap, as the kubelet does: a new folder, and a link renamed over
/// the old one.
fn publish(mount: &Path, version: u32) {
    let folder = mount.join(format!("..{version}"));
    fs::create_dir(&folder).unwrap();
    for name in ["a.yaml", "b.yaml"] {
        fs::write(folder.join(name), format!("version: {version}")).unwrap();
        // Written long ago, so that nothing but the swap itself is in the way.
        let file = File::options().write(true).open(folder.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
    symlink(format!("..{version}"), mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    if version > 0 {
        fs::remove_dir_all(mount.join(format!("..{}", version - 1))).unwrap();
    }
}

#[test]
fn config_map_swapped_repeatedly_is_never_read_in_part() {
    /// Versions that must be seen; the number that is skipped meanwhile depends on the machine.
    const SEEN: u32 = 5;
    let mount = tempfile::tempdir().unwrap();
    let mount = mount.path();
    publish(mount, 0);
    for name in ["a.yaml", "b.yaml"] {
        symlink(format!("..data/{name}"), mount.join(name)).unwrap();
    }
    let source = FileSource::new(mount);
    let done = AtomicBool::new(false);
    let newest = thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut version = 0;
            // Bounded, so that a failed assertion below ends the test.
            while !done.load(Ordering::Acquire) && version < 100_000 {
                version += 1;
                publish(mount, version);
                thread::sleep(Duration::from_millis(2));
            }
            version
        });
        let (mut seen, mut last) = (0, 0);
        while seen < SEEN && !publisher.is_finished() {
            // A file may be gone between being listed and being read: a failed read, and the next one is whole.
            let contents = match source.read(READ_TIMEOUT) {
                Ok(contents) => contents,
                Err(ReadError::Unreadable { .. } | ReadError::Unsettled { .. }) => continue,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(contents.files.len(), 2);
            assert_eq!(contents.files[0].bytes, contents.files[1].bytes, "half of one version and half of another");
            let version: u32 =
                std::str::from_utf8(&contents.files[0].bytes).unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            assert!(version >= last, "{version} after {last}");
            (seen, last) = (seen + u32::from(version > last), version);
        }
        assert_eq!(seen, SEEN, "versions that were seen");
        done.store(true, Ordering::Release);
        publisher.join().unwrap()
    });
    let at_rest = source.read(READ_TIMEOUT).unwrap();
    assert_eq!(at_rest.files[0].bytes, format!("version: {newest}").as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clock_set_back_does_not_hide_a_change_of_a_file() {
    let a = ScriptedHook::start(Script::Allow).await;
    let entry = |name: &str| hook(name, &a.url(), "");
    let configured = Configured::start(&[entry("a.example.com")]);
    let (current, path) = (&configured.running.current, configured.folder.path().join("gatepost.yaml"));
    let hour = Duration::from_secs(3600);
    // Files as a clock that is set back or forward leaves them: from tomorrow, and newer ones that seem older.
    for (name, time) in [
        ("tomorrow.example.com", SystemTime::now() + 24 * hour),
        ("now.example.com", SystemTime::now()),
        ("yesterday.example.com", SystemTime::now() - 24 * hour),
        ("long-ago.example.com", SystemTime::UNIX_EPOCH),
        ("before.example.com", SystemTime::UNIX_EPOCH - hour),
    ] {
        let new = configured.folder.path().join(".dated");
        fs::write(&new, document(&[entry(name)])).unwrap();
        File::options().write(true).open(&new).unwrap().set_modified(time).unwrap();
        fs::rename(&new, &path).unwrap();
        until(name, || &*current.load().hooks[0].hook.name == name).await;
        assert!(current.freshness().is_fresh(Instant::now()), "{name}");
    }
    tokio::task::spawn_blocking(|| drop(configured)).await.expect("stops");
}
