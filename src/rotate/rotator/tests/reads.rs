//! Results of a read: good, unsound, failed, or the same as before.

use std::io;

use super::*;
use crate::live::STALE_AFTER;

#[tokio::test(start_paused = true)]
async fn an_invalid_change_keeps_the_last_good_and_counts_as_fresh() {
    let mut rotator = started(&[("a", 1)]).await;
    tokio::time::advance(Duration::from_secs(4)).await;
    read(&mut rotator, written("kind: Nonsense")).await;
    let now = Instant::now().into_std();
    assert_eq!((number(&rotator), standing(&rotator)), (1, vec![standing_of("a", 1, 0)]));
    assert_eq!(rotator.current.freshness().age(now), Some(Duration::ZERO));
    let rejection = rotator.options.status.rejected.get().expect("rejected");
    assert!(!rejection.problems.is_empty());

    read(&mut rotator, written("kind: [")).await;
    let other = rotator.options.status.rejected.get().expect("still rejected");
    assert_ne!(other.problems, rejection.problems);
    assert_eq!(other.since, rejection.since, "since the first of them");

    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!((number(&rotator), rotator.options.status.rejected.get()), (1, None), "back to what is in force");
}

#[tokio::test(start_paused = true)]
async fn invalid_first_configuration_is_not_in_force() {
    let mut rotator = rotator();
    read(&mut rotator, written("kind: Nonsense")).await;
    let now = Instant::now().into_std();
    assert_eq!((number(&rotator), rotator.current.freshness().is_fresh(now)), (0, false));
    assert!(rotator.options.status.rejected.get().is_some());
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!((number(&rotator), rotator.current.freshness().is_fresh(now)), (1, true));
}

#[tokio::test(start_paused = true)]
async fn rewritten_unchanged_configuration_gets_newer_revision() {
    let mut rotator = rotator();
    read(&mut rotator, contents(&[("a", 1)]).with_revision(7)).await;
    let request = rotator.current.load();
    read(&mut rotator, contents(&[("a", 1)]).with_revision(8)).await;
    let renamed = rotator.current.load();
    assert_eq!((renamed.number, &renamed.revision), (2, &Revision::Store(8)));
    assert!(Arc::ptr_eq(&request.hooks[0].target.channel, &renamed.hooks[0].target.channel));
    read(&mut rotator, written("kind: Nonsense").with_revision(9)).await;
    read(&mut rotator, contents(&[("a", 1)]).with_revision(10)).await;
    assert_eq!(rotator.current.load().revision, Revision::Store(10), "also on the way back from an unsound one");
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_changes_nothing_but_the_age() {
    let mut rotator = started(&[("a", 1)]).await;
    tokio::time::advance(STALE_AFTER).await;
    let now = Instant::now().into_std();
    let error = ReadError::unreadable("gone".as_ref(), &io::ErrorKind::NotFound.into());
    rotator.apply_read(reading(Err(error.clone()))).await;
    rotator.apply_read(reading(Err(error.clone()))).await;
    let failed = rotator.options.status.failed_read.get().expect("reported");
    assert_eq!(rotator.logged_failures, [error], "a cause is logged once");
    assert_eq!((&*failed.error, failed.count), ("cannot read gone: entity not found", 2));
    assert_eq!((number(&rotator), rotator.current.freshness().age(now)), (1, Some(STALE_AFTER)));
    assert!(!rotator.current.freshness().is_fresh(now));
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert!(rotator.current.freshness().is_fresh(now));
    assert_eq!(rotator.options.status.failed_read.get(), None);
    assert_eq!(number(&rotator), 1, "the same contents are judged once");
}

#[tokio::test(start_paused = true)]
async fn read_while_webhooks_are_given_back_is_in_force_and_not_fresh() {
    let gives_back = |contents: Contents| {
        reading(Err(ReadError::GivesBack { webhooks: "validating/c/w".to_owned(), contents: Arc::new(contents) }))
    };
    let mut rotator = rotator();
    rotator.apply_read(gives_back(contents(&[("a", 1)]).with_revision(7))).await;
    let now = || Instant::now().into_std();
    assert_eq!((number(&rotator), rotator.current.freshness().age(now())), (1, None), "its bypass rules count");
    assert!(!rotator.current.decides(now()) && rotator.options.status.failed_read.get().is_some());
    rotator.apply_read(gives_back(contents(&[("b", 1)]).with_revision(8))).await;
    assert_eq!(
        (number(&rotator), standing(&rotator), rotator.current.freshness().age(now())),
        (2, vec![standing_of("b", 1, 0)], None)
    );
    read(&mut rotator, contents(&[("b", 1)]).with_revision(8)).await;
    assert!(rotator.current.decides(now()) && rotator.current.freshness().is_fresh(now()));

    // Something of the process before is in force, and fresh.
    let opened = SystemTime::now();
    let [opened, until] = [opened, opened + Duration::from_secs(3600)].map(humantime::format_rfc3339_seconds);
    let break_glass = written(&format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: BreakGlass\nmetadata: {{name: g}}\nopened: {opened}\nfor: 1h\nuntil: {until}\n\
         reason: x\n"
    ));
    rotator.apply_read(gives_back(break_glass.with_revision(9))).await;
    assert_eq!(standing(&rotator), [standing_of("b", 1, 0)]);
    assert_eq!(rotator.options.break_glass.open(now()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn causes_that_take_turns_are_logged_once_until_a_read_is_good() {
    let mut rotator = started(&[("a", 1)]).await;
    let [one, other] =
        ["one", "other"].map(|path| ReadError::unreadable(path.as_ref(), &io::ErrorKind::NotFound.into()));
    for error in [&one, &other, &one, &other] {
        rotator.apply_read(reading(Err(error.clone()))).await;
    }
    assert_eq!(rotator.logged_failures, [one, other]);
    assert_eq!(rotator.options.status.failed_read.get().expect("reported").count, 4);
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!(rotator.logged_failures, []);
}

#[tokio::test(start_paused = true)]
async fn reads_are_counted_by_outcome() {
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, written("kind: Nonsense")).await;
    rotator.apply_read(reading(Err(ReadError::Hung(STALE_AFTER)))).await;
    let text = rotator.metrics.render().unwrap();
    for outcome in ["changed", "unchanged", "rejected", "failed_hung"] {
        let sample = format!("gatepost_config_reads_total{{outcome=\"{outcome}\"}} 1\n");
        assert!(text.contains(&sample), "{outcome} in\n{text}");
    }
}

#[test]
fn finding_a_change_does_not_refresh_the_old_configuration() {
    // One thread for what blocks, and it is taken: the change is found, and cannot be judged yet.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut rotator = started(&[("a", 1)]).await;
        let current = Arc::clone(&rotator.current);
        let age = || current.freshness().age(Instant::now().into_std());
        tokio::time::advance(Duration::from_secs(3)).await;
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let blocking = spawn_blocking(move || taken.recv().is_err());
        {
            let mut change = std::pin::pin!(read(&mut rotator, contents(&[("b", 2)])));
            tokio::select! {
                biased;
                () = &mut change => panic!("it was judged"),
                () = std::future::ready(()) => {}
            }
            assert_eq!((current.load().number, age()), (1, Some(Duration::from_secs(3))));
            drop(free);
            change.await;
        }
        assert!(blocking.await.unwrap());
        assert_eq!((number(&rotator), age()), (2, Some(Duration::ZERO)));
    });
}

/// A sound configuration with one break-glass document, or none.
fn with_break_glass(break_glass: bool) -> Contents {
    let now = SystemTime::now();
    let [opened, until] = [now, now + Duration::from_secs(15 * 60)].map(humantime::format_rfc3339_seconds);
    let break_glass = match break_glass {
        true => format!(
            "---\napiVersion: gatepost.dev/v1alpha1\nkind: BreakGlass\nmetadata: {{name: night}}\nreason: told so\n\
             opened: {opened}\nfor: 15m\nuntil: {until}\n"
        ),
        false => String::new(),
    };
    written(&format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
         externalAdmissionHooks: []\n{break_glass}"
    ))
}

#[tokio::test(start_paused = true)]
async fn break_glass_opens_and_closes_with_a_sound_configuration() {
    let mut rotator = started(&[]).await;
    let open = |rotator: &Rotator| rotator.options.break_glass.open(Instant::now().into_std()).len();
    for break_glass in [true, false] {
        // A document that opens everything is heeded with the second read.
        for _ in 0..2 {
            read(&mut rotator, with_break_glass(break_glass)).await;
        }
        assert_eq!((rotator.options.status.rejected.get(), open(&rotator)), (None, usize::from(break_glass)));
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_and_observed_configurations_have_revisions() {
    let mut rotator = started(&[]).await;
    read(&mut rotator, written("kind: Nonsense").with_revision(7)).await;
    let rejected = |rotator: &Rotator| rotator.options.status.rejected.get().map(|rejected| rejected.revision.clone());
    assert_eq!((rejected(&rotator), rotator.options.status.observed()), (Some(Revision::Store(7)), Some(7)));
    read(&mut rotator, Contents { as_of: Some(9), ..written("kind: Nonsense").with_revision(7) }).await;
    assert_eq!((rejected(&rotator), rotator.options.status.observed()), (Some(Revision::Store(7)), Some(9)));
    read(&mut rotator, written("kind: Nonsense # again").with_revision(10)).await;
    assert_eq!(rejected(&rotator), Some(Revision::Store(10)), "the same problems, written anew");
    let error = ReadError::unreadable("gone".as_ref(), &io::ErrorKind::NotFound.into());
    rotator.apply_read(reading(Err(error.clone()))).await;
    assert_eq!(rotator.options.status.failed_read.get().map(|failed| failed.error.clone()), Some(error.to_string()));
    assert_eq!(rotator.options.status.observed(), Some(10), "a failed read has seen nothing");
    read(&mut rotator, contents(&[]).with_revision(11)).await;
    assert_eq!((rotator.options.status.failed_read.get(), rejected(&rotator)), (None, None));
}
