//! Documents that cannot be served: they stay as they were, and stop no other.

use super::*;
use gatepost_config::SourceFile;

/// A file for each of these: its name, and its hooks with their ports; no hooks are a fault.
fn files(files: &[(&str, &[(&str, u16)])]) -> Contents {
    let file = |(name, hooks): &(&str, &[(&str, u16)])| {
        let mut text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: {name}}}\n\
             externalAdmissionHooks:\n"
        );
        for (hook, port) in *hooks {
            text += &format!(
                "- {{name: {hook}.example.com, rules: [], clientConfig: {{url: 'grpc://127.0.0.1:{port}'}}}}\n"
            );
        }
        SourceFile { name: format!("{name}.yaml"), bytes: text.into() }
    };
    Contents::new(files.iter().map(file).collect(), BTreeMap::new())
}

/// Quarantined document: the file, and whether its last good state is in force.
fn held(rotator: &Rotator) -> Vec<(String, bool)> {
    let rejected = rotator.options.status.rejected.get();
    rejected
        .iter()
        .flat_map(|it| &it.quarantined)
        .map(|held| (held.document.clone(), held.last_good_in_force))
        .collect()
}

fn names(rotator: &Rotator) -> Vec<String> {
    standing(rotator).into_iter().map(|(name, ..)| name).collect()
}

async fn take(rotator: &mut Rotator, contents: Contents) {
    rotator.apply_read(reading(Ok(contents))).await;
}

#[tokio::test]
async fn a_document_at_fault_stays_as_it_was_and_the_others_change() {
    let mut rotator = rotator();
    let whole = files(&[("a", &[("one", 1)]), ("b", &[("two", 2)])]);
    read(&mut rotator, whole.clone()).await;
    take(&mut rotator, whole.clone()).await;
    assert!(rotator.options.status.rejected.get().is_none());

    // Nothing but the document at fault has changed: what is in force bears its name on.
    let only = files(&[("a", &[]), ("b", &[("two", 2)])]);
    take(&mut rotator, only.clone()).await;
    assert_eq!((number(&rotator), held(&rotator)), (1, vec![("a.yaml".to_owned(), true)]));
    assert_eq!(rotator.current.load().digest, whole.digest);
    let since = rotator.options.status.rejected.get().unwrap().quarantined[0].since;

    let mixed = files(&[("a", &[]), ("b", &[("two", 2), ("three", 3)]), ("c", &[])]);
    take(&mut rotator, mixed.clone()).await;
    assert_eq!(names(&rotator), ["one", "two", "three"]);
    assert_eq!(held(&rotator), [("a.yaml".to_owned(), true), ("c.yaml".to_owned(), false)]);
    assert_eq!(rotator.options.status.rejected.get().unwrap().quarantined[0].since, since);
    let in_force = rotator.current.load();
    assert!(in_force.digest != whole.digest && in_force.digest != mixed.digest, "no state of the source is in force");
    assert_eq!(in_force.revision, Revision::of_digest(&in_force.digest));
    let (generation, outcome) = (number(&rotator), rotator.options.status.rejected.get().unwrap().revision.clone());
    assert_eq!(outcome, mixed.revision);
    take(&mut rotator, mixed).await;
    assert_eq!(number(&rotator), generation, "read again, it is the same");

    let mended = files(&[("a", &[("one", 1), ("four", 4)]), ("b", &[("two", 2), ("three", 3)])]);
    take(&mut rotator, mended.clone()).await;
    assert_eq!(names(&rotator), ["one", "four", "two", "three"]);
    assert!(rotator.options.status.rejected.get().is_none());
    assert_eq!(rotator.current.load().digest, mended.digest);
}

#[tokio::test]
async fn unconfirmed_state_is_never_last_good() {
    let mut rotator = rotator();
    read(&mut rotator, files(&[("a", &[("one", 1), ("two", 2)]), ("b", &[("three", 3)])])).await;
    // Half written, and sound as it is; then cut elsewhere.
    take(&mut rotator, files(&[("a", &[("one", 1)]), ("b", &[("three", 3)])])).await;
    assert!(rotator.pending_confirmation.is_some());
    take(&mut rotator, files(&[("a", &[]), ("b", &[("three", 3), ("four", 4)])])).await;
    assert_eq!(names(&rotator), ["one", "two", "three", "four"]);
    assert_eq!(held(&rotator), [("a.yaml".to_owned(), true)]);
}

#[tokio::test]
async fn relaxation_beside_quarantined_document_needs_second_read() {
    let mut rotator = rotator();
    read(&mut rotator, files(&[("a", &[("one", 1)]), ("b", &[("two", 2), ("three", 3)])])).await;
    // Port 0 is a fault, too, and one that leaves the names known.
    let less = files(&[("a", &[("one", 0)]), ("b", &[("two", 2)])]);
    take(&mut rotator, less.clone()).await;
    assert_eq!((names(&rotator).len(), held(&rotator).len()), (3, 1), "reported at once, though it waits");
    take(&mut rotator, less).await;
    assert_eq!(names(&rotator), ["one", "two"]);
}

#[tokio::test]
async fn faulty_first_configuration_is_rejected_by_default() {
    let faulty = files(&[("a", &[]), ("b", &[("two", 2)])]);
    let mut refusing = rotator();
    take(&mut refusing, faulty.clone()).await;
    assert_eq!((number(&refusing), refusing.options.status.rejected.get().unwrap().is_whole()), (0, true));

    let mut lenient = skipping();
    take(&mut lenient, faulty).await;
    assert_eq!((names(&lenient), held(&lenient)), (vec!["two".to_owned()], vec![("a.yaml".to_owned(), false)]));

    let mut nothing = skipping();
    take(&mut nothing, files(&[("a", &[])])).await;
    assert_eq!(number(&nothing), 0, "nothing at all is not taken for no hooks");
}

#[tokio::test]
async fn break_glass_is_opened_and_closed_by_the_newest_state_alone() {
    let break_glass = |name: &str, hooks: &str| {
        let opened = humantime::format_rfc3339_seconds(SystemTime::now());
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: BreakGlass\nmetadata: {{name: {name}}}\nopened: {opened}\nfor: 1h\n\
             until: {}\nreason: x\n{hooks}",
            humantime::format_rfc3339_seconds(
                humantime::parse_rfc3339(&opened.to_string()).unwrap() + Duration::from_secs(3600)
            )
        );
        SourceFile { name: format!("{name}.yaml"), bytes: text.into() }
    };
    let with = |more: &[SourceFile]| {
        let Contents { files, .. } = files(&[("a", &[]), ("b", &[("two", 2)])]);
        Contents::new([files, more.to_vec()].concat(), BTreeMap::new()).with_revision(1)
    };
    let mut rotator = rotator();
    take(&mut rotator, files(&[("a", &[("one", 1)]), ("b", &[("two", 2)])]).with_revision(1)).await;
    let open = |rotator: &Rotator| rotator.options.break_glass.open(Instant::now().into_std()).len();
    take(&mut rotator, with(&[break_glass("g", "hooks: [one.example.com]\n")])).await;
    assert_eq!((open(&rotator), held(&rotator).len()), (1, 1));
    take(&mut rotator, with(&[break_glass("g", "hooks: []\n")])).await;
    assert_eq!((open(&rotator), held(&rotator).len()), (0, 2), "at fault, it opens nothing, whatever it opened before");
}
