//! Hooks that a source without transactions seems to have dropped are enforced until a second read confirms it.

use super::*;

async fn read_once(rotator: &mut Rotator, contents: Contents) {
    rotator.apply_read(reading(Ok(contents))).await;
}

fn names(rotator: &Rotator) -> Vec<String> {
    standing(rotator).into_iter().map(|(name, ..)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_missing_stays_until_a_second_equal_read() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    tokio::time::advance(Duration::from_secs(4)).await;
    read_once(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!((number(&rotator), names(&rotator)), (1, vec!["a".to_owned(), "b".to_owned()]));
    let now = Instant::now().into_std();
    assert_eq!(rotator.current.freshness().age(now), Some(Duration::ZERO), "the read was good");
    let unconfirmed = rotator.options.status.pending_confirmation.get().expect("reported");
    assert_eq!(
        unconfirmed.relaxations.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["hook b.example.com is gone"]
    );
    let page = rotator.metrics.render().unwrap();
    assert!(page.contains("gatepost_config_reads_total{outcome=\"unconfirmed\"} 1\n"), "{page}");

    read_once(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!((number(&rotator), names(&rotator)), (2, vec!["a".to_owned()]));
    assert_eq!(rotator.options.status.pending_confirmation.get(), None);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_whole_again_has_let_nothing_go() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    for cut in [contents(&[("a", 1)]), written("kind: ["), contents(&[]), contents(&[("b", 2)]), written("# nothing\n")]
    {
        read_once(&mut rotator, cut).await;
    }
    let error = ReadError::unreadable("gone".as_ref(), &std::io::ErrorKind::NotFound.into());
    read_once(&mut rotator, contents(&[("a", 1)])).await;
    rotator.apply_read(reading(Err(error))).await;
    read_once(&mut rotator, contents(&[("a", 1), ("b", 2)])).await;
    assert_eq!(number(&rotator), 1, "nothing was ever put in force");
    assert_eq!(
        (rotator.options.status.rejected.get(), rotator.options.status.pending_confirmation.get()),
        (None, None)
    );
    assert_eq!(standing(&rotator), [standing_of("a", 1, 0), standing_of("b", 2, 0)]);
}

#[tokio::test(start_paused = true)]
async fn relaxation_confirmed_twice_applies_though_other_bytes_change() {
    let mut rotator = started(&[("a", 1), ("b", 2), ("c", 3)]).await;
    read_once(&mut rotator, contents(&[("a", 1), ("d", 4)])).await;
    read_once(&mut rotator, contents(&[("a", 1), ("c", 3), ("d", 4)])).await;
    assert_eq!((number(&rotator), names(&rotator).len()), (1, 3), "less is let go than before: it is still growing");
    read_once(&mut rotator, contents(&[("a", 1), ("c", 3), ("d", 4), ("e", 5)])).await;
    assert_eq!((number(&rotator), names(&rotator)), (2, ["a", "c", "d", "e"].map(str::to_owned).to_vec()));
    assert_eq!(rotator.options.status.pending_confirmation.get(), None);
}

#[tokio::test(start_paused = true)]
async fn added_and_changed_hooks_wait_for_no_confirmation() {
    let mut rotator = started(&[("a", 1)]).await;
    read_once(&mut rotator, contents(&[("a", 1), ("b", 2)])).await;
    assert_eq!(standing(&rotator), [standing_of("a", 1, 0), standing_of("b", 0, 0)]);
    read_once(&mut rotator, contents(&[("a", 3), ("b", 2)])).await;
    assert_eq!((number(&rotator), standing(&rotator)), (3, vec![standing_of("a", 1, 3), standing_of("b", 0, 0)]));
}

#[tokio::test(start_paused = true)]
async fn hooks_of_a_half_written_first_file_are_called_at_once() {
    let mut rotator = rotator();
    for (found, wanted) in [
        (vec![("a", 1)], vec![standing_of("a", 1, 0)]),
        (vec![("a", 1), ("b", 2)], vec![standing_of("a", 1, 0), standing_of("b", 2, 0)]),
        (vec![("a", 1), ("b", 22)], vec![standing_of("a", 1, 0), standing_of("b", 22, 0)]),
    ] {
        read_once(&mut rotator, contents(&found)).await;
        assert_eq!(standing(&rotator), wanted);
    }
    read_once(&mut rotator, written("kind: [")).await;
    read_once(&mut rotator, written("kind: [")).await;
    read_once(&mut rotator, contents(&[("a", 1), ("b", 22), ("c", 3)])).await;
    assert_eq!(standing(&rotator)[2], standing_of("c", 3, 0), "what was equal was not in force");
    read_once(&mut rotator, contents(&[("a", 1), ("b", 22), ("c", 3)])).await;
    read_once(&mut rotator, contents(&[("a", 1), ("b", 22), ("c", 33), ("d", 4)])).await;
    assert_eq!(standing(&rotator)[2..], [standing_of("c", 3, 33), standing_of("d", 0, 0)], "the start is over");

    let mut rotator = self::rotator();
    read_once(&mut rotator, contents(&[("a", 1)]).with_revision(1)).await;
    read_once(&mut rotator, contents(&[("a", 1), ("b", 2)]).with_revision(2)).await;
    assert_eq!(standing(&rotator), [standing_of("a", 1, 0), standing_of("b", 0, 0)], "a store was read whole");
}

#[tokio::test(start_paused = true)]
async fn transactional_source_needs_no_confirmation() {
    let mut rotator = rotator();
    read_once(&mut rotator, contents(&[("a", 1), ("b", 2)]).with_revision(1)).await;
    read_once(&mut rotator, contents(&[("a", 1)]).with_revision(2)).await;
    assert_eq!((number(&rotator), standing(&rotator)), (2, vec![standing_of("a", 1, 0)]));
    read_once(&mut rotator, Contents::new(Vec::new(), BTreeMap::new()).with_revision(3)).await;
    assert_eq!((number(&rotator), rotator.options.status.rejected.get()), (3, None), "no object is an explicit state");
}

#[tokio::test(start_paused = true)]
async fn source_without_documents_is_a_problem_and_removes_nothing() {
    for (name, empty) in [
        ("an empty file", written("")),
        ("comments", written("# hooks:\n\n")),
        ("a mark", written("---\n")),
        ("null", written("null\n")),
        ("a List that ends too early", written("apiVersion: v1\nkind: List\n")),
        ("nothing behind a key", {
            let head =
                "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: main}\n";
            written(&format!("{head}externalAdmissionHooks:\n"))
        }),
        ("nothing behind upstream's key", {
            let head = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n";
            written(&format!("{head}metadata: {{name: main}}\nwebhooks:\n"))
        }),
        ("an empty folder", Contents::new(Vec::new(), BTreeMap::new())),
    ] {
        let mut rotator = started(&[("a", 1)]).await;
        for _ in 0..3 {
            read_once(&mut rotator, empty.clone()).await;
        }
        assert_eq!((number(&rotator), standing(&rotator)), (1, vec![standing_of("a", 1, 0)]), "{name}");
        assert_eq!(rotator.options.status.rejected.get().map(|rejected| rejected.problems.len()), Some(1), "{name}");
        let now = Instant::now().into_std();
        assert!(rotator.current.freshness().is_fresh(now), "{name}");
        let first = self::rotator();
        assert!(super::super::super::candidate(&empty, OnHazard::Off).is_err(), "{name}: refused at the start");
        drop(first);
    }
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, written("{apiVersion: v1, kind: List, items: []}")).await;
    assert_eq!((number(&rotator), standing(&rotator)), (2, vec![]), "that is how to have no hooks");
}

#[tokio::test(start_paused = true)]
async fn a_break_glass_that_is_half_written_does_not_open_everything() {
    let opened = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let until = humantime::format_rfc3339_seconds(SystemTime::now() + Duration::from_secs(600)).to_string();
    let sound = String::from_utf8(contents(&[("a", 1)]).files[0].bytes.to_vec()).unwrap();
    let break_glass = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: BreakGlass\nmetadata: {{name: g}}\nopened: {opened}\nfor: 10m\n\
         until: {until}\nreason: r\n"
    );
    for (name, before) in [("sound", sound.clone()), ("broken beside", format!("{sound}surprise: 1\n"))] {
        let is_open = |rotator: &Rotator| {
            let open = rotator.options.break_glass.open(Instant::now().into_std());
            open.iter().map(|open| open.document.hooks.len()).collect::<Vec<_>>()
        };
        let mut rotator = started(&[("a", 1)]).await;
        let all = written(&format!("{before}---\n{break_glass}"));
        read_once(&mut rotator, all.clone()).await;
        assert!(is_open(&rotator).is_empty(), "{name}: it may be half of what follows");
        read_once(&mut rotator, written(&format!("{before}---\n{break_glass}hooks: [b.example.com]\n"))).await;
        assert_eq!(is_open(&rotator), [1], "{name}: one hook is open at once");
        for open in [1, 0, 0] {
            read_once(&mut rotator, all.clone()).await;
            assert_eq!(is_open(&rotator), [open], "{name}: a second read means it");
        }
        read_once(&mut rotator, written(&before)).await;
        assert!(is_open(&rotator).is_empty(), "{name}: it closes at once");
    }
    let mut rotator = rotator();
    read_once(&mut rotator, contents(&[]).with_revision(1)).await;
    read_once(&mut rotator, written(&break_glass).with_revision(2)).await;
    assert!(!rotator.options.break_glass.open(Instant::now().into_std()).is_empty(), "a store says what it means");
}
