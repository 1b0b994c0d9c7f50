use proptest::prelude::*;

use super::*;
use crate::OwnedNames;
use gatepost_api::{Rope, StatusCause};
use gatepost_json_patch::{Document, Patch, PatchLimits};

const NAMES: [&str; 3] = ["a.example.com", "b.example.com", "c.example.com"];
const STARTED: &str = "2026-11-23T08:00:00Z";

fn ann() -> Value {
    json!({"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"k": ["v"]}})
}

fn state(names: &[&str]) -> InitState {
    InitState::new(Initializers::of(names.iter().copied()), ann(), STARTED)
}

/// The same state with another list.
fn with(state: &InitState, list: Initializers) -> InitState {
    InitState { list, ..state.clone() }
}

fn failure() -> StatusInfo {
    StatusInfo { code: 403, status: "Failure".into(), message: "no".into(), ..StatusInfo::default() }
}

fn marked(state: &InitState) -> Marks {
    Marks { label: Some("0123abcd".into()), state: Some(state.write().unwrap().into()) }
}

const ANY: Actor<'_> = Actor { may_initialize: true, owns: OwnedNames::Any };
const NOBODY: Actor<'_> = Actor { may_initialize: false, owns: OwnedNames::Names(&[]) };

fn applied(object: &Value, patch: &Value) -> Result<Value, String> {
    let object = Document::new(Rope::new([object.to_string().into()])).map_err(|error| error.to_string())?;
    let patch = Patch::parse(patch.to_string().into()).map_err(|error| error.to_string())?;
    let changed = object.patched(&patch, PatchLimits::default()).map_err(|error| error.to_string())?;
    let rope = changed.rope();
    Ok(serde_json::from_slice(&rope.to_bytes()).unwrap())
}

fn marks_of(object: &Value) -> Marks {
    let text = |map: &str, key: &str| object["metadata"][map][key].as_str().map(Into::into);
    Marks { label: text("labels", PENDING_LABEL), state: text("annotations", STATE_ANNOTATION) }
}

#[test]
fn state_annotation_has_the_documented_form() {
    let text = state(&["a.example.com", "b.example.com"]).write().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!({"state": "Pending", "pending": ["a.example.com", "b.example.com"], "started": STARTED, "creator": ann()})
    );
    let failed = state(&["a.example.com"]).failed(failure());
    let read = InitState::read(&failed.write().unwrap()).unwrap();
    assert_eq!((read.phase(), read.list.result.as_deref().unwrap().code), (InitPhase::Failed, 403));
    // Everybody may read what is left of it at the end.
    assert_eq!(state(&[]).phase(), InitPhase::Completed);
    assert_eq!(state(&[]).write(), InitState::completed().write());
    assert_eq!(state(&[]).write().unwrap(), r#"{"state":"Completed","pending":[]}"#);
}

#[test]
fn foreign_state_annotation_is_unreadable_and_not_quoted() {
    let many = json!({"state": "Pending", "pending": vec!["a"; 129]}).to_string();
    for wrong in [
        "",
        "secret",
        "[]",
        r#"{"state":"Pending","pending":[]}"#,
        r#"{"state":"Completed","pending":["a"]}"#,
        r#"{"state":"Failed","pending":["a"]}"#,
        r#"{"state":"Secret","pending":["a"]}"#,
        r#"{"state":"Pending"}"#,
        r#"{"state":"Pending","pending":["a"],"secret":1}"#,
        &many,
        &format!(r#"{{"state":"Pending","pending":["a"],"creator":"{}"}}"#, "x".repeat(200_000)),
    ] {
        let error = InitState::read(wrong).unwrap_err();
        assert!(!error.contains("ecret"), "{error}");
        let hidden = Marks { label: Some("1".into()), state: Some(wrong.into()) };
        assert_eq!(hidden.object(), MarkedObject::Unreadable);
    }
}

#[test]
fn result_of_any_size_fits_into_the_annotation() {
    let long = "é".repeat(1 << 20);
    let cause = StatusCause { reason: long.clone(), message: long.clone(), field: long.clone() };
    let result = StatusInfo { message: long.clone(), reason: long, causes: vec![cause; 500], ..failure() };
    let text = state(&NAMES).failed(result).write().unwrap();
    assert!(text.len() < 128 << 10, "{}", text.len());
    assert_eq!(InitState::read(&text).unwrap().phase(), InitPhase::Failed);
    let state = InitState::new(Initializers::of(NAMES), json!({"groups": vec!["x".repeat(1000); 200]}), STARTED);
    assert!(state.write().unwrap_err().contains("groups"));
}

#[test]
fn new_object_may_only_have_marks_of_the_same_request() {
    let ours = state(&NAMES);
    let asked_again = InitState { started: "2026-11-23T08:00:01Z".into(), ..ours.clone() };
    assert_eq!(check_new(&Marks::default(), &ann()), Ok(()));
    assert_eq!(check_new(&marked(&asked_again), &ann()), Ok(()));
    assert_eq!(check_new(&marked(&state(&NAMES[..1])), &ann()), Ok(()), "another webhook has changed the object since");
    let label_alone = Marks { label: Some("1".into()), state: None };
    let state_alone = Marks { label: None, ..marked(&ours) };
    for wrong in [marked(&ours.failed(failure())), label_alone.clone(), state_alone.clone()] {
        assert_eq!(check_new(&wrong, &ann()).unwrap_err().code(), 403, "{wrong:?}");
    }
    assert_eq!(check_new(&marked(&ours), &json!({"username": "bob"})).unwrap_err().code(), 403);
    // The state that a finished object is left with is no mark: a user who has its manifest makes it again.
    let finished = Marks { label: None, ..marked(&state(&[])) };
    assert_eq!(check_new(&finished, &ann()), Ok(()));
    assert_eq!(check_marked_for(&finished, "bob"), Ok(()));
    assert_eq!(check_new(&marked(&state(&[])), &ann()).unwrap_err().code(), 403);
    assert_eq!(check_marked_for(&Marks::default(), "ann"), Ok(()));
    assert_eq!(check_marked_for(&marked(&ours), "ann"), Ok(()));
    for (wrong, user) in
        [(marked(&ours), "bob"), (label_alone, "ann"), (state_alone, "ann"), (marked(&ours.failed(failure())), "ann")]
    {
        assert!(check_marked_for(&wrong, user).is_err(), "{wrong:?} {user}");
    }
}

#[test]
fn marks_change_by_steps_of_the_owner_alone() {
    let before = state(&NAMES);
    let old = marked(&before);
    let goes = |names: &[&str]| marked(&with(&before, Initializers::of(names.iter().copied())));
    let own = [NAMES[0]];
    let head = Actor { may_initialize: true, owns: OwnedNames::Names(&own) };
    let other = Actor { may_initialize: true, owns: OwnedNames::Names(&[]) };
    let completed = Marks { label: None, ..goes(&[]) };
    let code = |new: &Marks, actor| judge_update(&old, new, false, actor).map_err(|refused| refused.code());
    let table = [
        (old.clone(), NOBODY, Err(403)),
        (old.clone(), other, Ok(MarksOutcome::Keep)),
        (goes(&NAMES[1..]), head, Ok(MarksOutcome::Record)),
        (goes(&NAMES[1..]), ANY, Ok(MarksOutcome::Record)),
        (marked(&before.done(NAMES[0], Vec::new()).unwrap()), head, Ok(MarksOutcome::Keep)),
        (goes(&NAMES[1..]), other, Err(403)),
        (goes(&NAMES[1..]), NOBODY, Err(403)),
        (goes(&NAMES[2..]), head, Err(422)),
        (goes(&[NAMES[1], NAMES[0], NAMES[2]]), head, Err(422)),
        (goes(&[NAMES[0], "x.example.com", NAMES[1], NAMES[2]]), head, Ok(MarksOutcome::Keep)),
        (marked(&before.failed(failure())), head, Ok(MarksOutcome::Keep)),
        (marked(&before.failed(failure())), other, Err(403)),
        (completed.clone(), head, Err(422)),
        (Marks::default(), head, Ok(MarksOutcome::Restore)),
        (Marks::default(), NOBODY, Err(403)),
        (Marks { label: None, ..old.clone() }, head, Ok(MarksOutcome::Restore)),
        (Marks { state: None, ..old.clone() }, head, Ok(MarksOutcome::Restore)),
        (Marks { label: Some("2".into()), ..old.clone() }, head, Ok(MarksOutcome::Restore)),
        (Marks { label: Some("2".into()), ..goes(&NAMES[1..]) }, head, Err(422)),
        (Marks { label: None, ..goes(&NAMES[1..]) }, head, Err(422)),
        (Marks { state: Some("x".into()), ..old.clone() }, head, Err(422)),
        (marked(&InitState { creator: json!({"username": "bob"}), ..before.clone() }), ANY, Err(422)),
        (marked(&InitState { started: "x".into(), ..before.clone() }), ANY, Err(422)),
    ];
    for (new, actor, wanted) in table {
        assert_eq!(code(&new, actor), wanted, "{new:?} {actor:?}");
    }
    let last = marked(&state(&NAMES[..1]));
    assert_eq!(
        judge_update(&last, &completed, false, head),
        Ok(MarksOutcome::Keep),
        "the label and the list go together"
    );
    let labelled = Marks { label: last.label.clone(), ..completed.clone() };
    assert_eq!(judge_update(&last, &labelled, false, head).unwrap_err().code(), 422);
    // A user who deletes it must not wait for initializers.
    assert_eq!(judge_update(&old, &old, true, NOBODY), Ok(MarksOutcome::Keep));
    assert_eq!(judge_update(&old, &Marks::default(), true, NOBODY).unwrap_err().code(), 403);
    // From then on it is an object as any other.
    assert_eq!(judge_update(&completed, &completed, false, NOBODY), Ok(MarksOutcome::Keep));
    assert_eq!(judge_update(&Marks::default(), &completed, false, NOBODY), Ok(MarksOutcome::Keep), "it says nothing");
    assert_eq!(judge_update(&completed, &Marks::default(), false, NOBODY), Ok(MarksOutcome::Keep));
    assert_eq!(judge_update(&completed, &old, false, ANY).unwrap_err().code(), 422);
    let waits = Marks { label: None, ..old.clone() };
    assert_eq!(judge_update(&Marks::default(), &waits, false, ANY).unwrap_err().code(), 422);
    assert_eq!(judge_update(&Marks::default(), &Marks::default(), false, NOBODY), Ok(MarksOutcome::Keep));
    assert_eq!(omitted_marks().code(), 422);
    // A label that says nothing may be taken away, and hides nothing for ever.
    let lost = Marks { label: Some("1".into()), state: None };
    assert_eq!(judge_update(&lost, &Marks::default(), false, ANY), Ok(MarksOutcome::Keep));
    assert_eq!(judge_update(&lost, &Marks::default(), false, NOBODY).unwrap_err().code(), 403);
    assert_eq!(judge_update(&lost, &old, false, ANY).unwrap_err().code(), 422);
}

#[test]
fn marking_patch_adds_missing_maps() {
    let marks = marked(&state(&NAMES));
    for object in [
        json!({"metadata": {"name": "n"}}),
        json!({"metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"c": "d"}}}),
        json!({"metadata": {"name": "n", "labels": {PENDING_LABEL: "wrong"}}}),
    ] {
        let has = |map: &str| object["metadata"][map].is_object();
        let after = applied(&object, &marking_patch((has("labels"), has("annotations")), &marks)).unwrap();
        assert_eq!(marks_of(&after), marks);
        assert_eq!(after["metadata"]["labels"]["a"], object["metadata"]["labels"]["a"], "what was there stays");
    }
}

#[test]
fn patch_of_an_initializer_may_touch_everything_but_marks_and_identity() {
    let label = "/metadata/labels/init.gatepost.dev~1pending";
    for path in
        ["", "/metadata", "/metadata/labels", "x/metadata/uid", "/metadata/uid", "/kind", label, "/metadata/name/x"]
    {
        for op in ["add", "replace", "remove", "copy"] {
            assert!(touches_reserved(&[json!({"op": op, "path": path, "from": "/spec"})]), "{op} {path}");
        }
        assert!(touches_reserved(&[json!({"op": "move", "path": "/spec/a", "from": path})]), "{path}");
        // Reading changes nothing.
        assert!(!touches_reserved(&[json!({"op": "test", "path": path})]), "{path}");
        assert!(!touches_reserved(&[json!({"op": "copy", "path": "/spec/a", "from": path})]), "{path}");
    }
    let many = (0..5000).map(|number| json!({"op": "add", "path": format!("/data/{number}{}", "x".repeat(50))}));
    assert!(!touches_reserved(&many.collect::<Vec<_>>()), "however many there are");
    for path in ["/metadata/labels/a", "/metadata/labels/0", "/metadata/names", "/spec", "/data/0", "/kinds"] {
        assert!(!touches_reserved(&[json!({"op": "add", "path": path})]), "{path}");
    }
}

#[test]
fn initializer_has_no_second_turn() {
    let first = state(&NAMES[..2]);
    let second = first.done(NAMES[0], vec!["x".into()]).unwrap();
    assert_eq!(second.list.pending, ["x".into(), NAMES[1].into()]);
    assert!(second.done("x", vec![NAMES[0].into()]).is_err(), "two that add each other would never end");
    let read = InitState::read(&second.write().unwrap()).unwrap();
    assert_eq!((&read.done, read == second), (&vec![NAMES[0].into()], true));
    let ends = second.done("x", Vec::new()).unwrap().done(NAMES[1], Vec::new()).unwrap();
    assert_eq!(ends.phase(), InitPhase::Completed);
    // Clients need not keep the book: it is kept for them.
    let old = marked(&second);
    let by_client = marked(&with(&second, Initializers::of([NAMES[1]])));
    assert_eq!(judge_update(&old, &by_client, false, ANY), Ok(MarksOutcome::Record));
    let kept = with_turn_recorded(&old, &by_client).unwrap();
    assert_eq!(InitState::read(kept.state.as_deref().unwrap()).unwrap().done, [NAMES[0].into(), "x".into()]);
    assert_eq!(judge_update(&old, &kept, false, ANY), Ok(MarksOutcome::Keep));
    let again = marked(&with(&second, Initializers::of([NAMES[0], NAMES[1]])));
    assert_eq!(judge_update(&old, &again, false, ANY).unwrap_err().code(), 422);
    let wrong = InitState { done: vec!["y".into()], ..with(&second, Initializers::of([NAMES[1]])) };
    assert_eq!(judge_update(&old, &marked(&wrong), false, ANY).unwrap_err().code(), 422);
}

/// One way in which somebody writes the marks of an object.
#[derive(Clone, Debug)]
enum Edit {
    Same,
    DropBoth,
    DropLabel,
    DropState,
    OtherLabel,
    /// The list without its first names, and others behind the new head.
    Goes {
        without: usize,
        adds: Option<usize>,
        label: bool,
    },
    Reversed,
    Fails,
    /// The result of a failed object is another one.
    Absolves,
    Completes {
        label: bool,
    },
    OtherCreator,
    Nonsense,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        1 => Just(Edit::Same),
        1 => Just(Edit::DropBoth),
        1 => Just(Edit::DropLabel),
        1 => Just(Edit::DropState),
        1 => Just(Edit::OtherLabel),
        4 => (0..3usize, proptest::option::of(0..3usize), any::<bool>())
            .prop_map(|(without, adds, label)| Edit::Goes { without, adds, label }),
        1 => Just(Edit::Reversed),
        1 => Just(Edit::Fails),
        1 => Just(Edit::Absolves),
        2 => any::<bool>().prop_map(|label| Edit::Completes { label }),
        1 => Just(Edit::OtherCreator),
        1 => Just(Edit::Nonsense),
    ]
}

impl Edit {
    fn of(&self, old: &Marks) -> Marks {
        let known = old.state.as_deref().and_then(|text| InitState::read(text).ok()).unwrap_or_else(|| state(&NAMES));
        let label = old.label.clone().or_else(|| Some("1".into()));
        let write = |state: &InitState| Some(state.write().unwrap().into());
        match self {
            Self::Same => old.clone(),
            Self::DropBoth => Marks::default(),
            Self::DropLabel => Marks { label: None, ..old.clone() },
            Self::DropState => Marks { state: None, ..old.clone() },
            Self::OtherLabel => Marks { label: Some("2".into()), ..old.clone() },
            Self::Goes { without, adds, label: keeps } => {
                let mut pending: Vec<_> = known.list.pending.iter().skip(*without).cloned().collect();
                let place = pending.len().min(1);
                adds.iter().for_each(|add| pending.insert(place, NAMES[*add].into()));
                let state = write(&with(&known, Initializers { pending, ..known.list.clone() }));
                Marks { label: label.filter(|_| *keeps), state }
            }
            Self::Reversed => {
                let mut list = known.list.clone();
                list.pending.reverse();
                Marks { label, state: write(&with(&known, list)) }
            }
            Self::Fails => Marks { label, state: write(&known.failed(failure())) },
            Self::Absolves => {
                let result = StatusInfo { code: 500, ..failure() };
                Marks { label, state: write(&known.failed(result)) }
            }
            Self::Completes { label: keeps } => {
                Marks { label: label.filter(|_| *keeps), state: write(&with(&known, Initializers::default())) }
            }
            Self::OtherCreator => {
                Marks { label, state: write(&InitState { creator: json!({"username": "eve"}), ..known }) }
            }
            Self::Nonsense => Marks { label, state: Some("{".into()) },
        }
    }
}

proptest! {
    /// Any writes by anybody, in any order: an object is hidden until each head was removed by somebody who may, one at
    /// a time and in order, and never again after that; results and the creator stay.
    #[test]
    fn marked_object_is_hidden_until_its_list_is_done(
        edits in proptest::collection::vec((edit(), 0..5usize), 1..40)
    ) {
        let mut marks = marked(&state(&NAMES));
        for (edit, who) in edits {
            let new = edit.of(&marks);
            let before = marks.object();
            let own = [NAMES.get(who).copied().unwrap_or_default()];
            let actor = match who {
                0..3 => Actor { may_initialize: true, owns: OwnedNames::Names(&own) },
                3 => ANY,
                _ => NOBODY,
            };
            let after = match judge_update(&marks, &new, false, actor) {
                Ok(MarksOutcome::Keep) => new,
                Ok(MarksOutcome::Record) => with_turn_recorded(&marks, &new).unwrap(),
                Ok(MarksOutcome::Restore) | Err(_) => marks.clone(),
            };
            match (&before, after.object()) {
                (MarkedObject::Visible, after) => prop_assert_eq!(after, MarkedObject::Visible),
                (MarkedObject::Unfinished(state), MarkedObject::Visible) => {
                    prop_assert_eq!(state.list.pending.len(), 1, "only the last one completes");
                    prop_assert!(state.list.result.is_none(), "what has failed is never seen");
                    prop_assert!(who == 3 || state.list.head() == NAMES.get(who).copied());
                }
                (MarkedObject::Unfinished(old), MarkedObject::Unfinished(new)) => {
                    prop_assert_eq!(&old.creator, &new.creator);
                    prop_assert!(old.list.result.is_none() || old.list == new.list);
                    if old.list != new.list {
                        prop_assert!(who == 3 || old.list.head() == NAMES.get(who).copied());
                        let left = new.list.pending.iter().filter(|name| old.list.pending.contains(name)).count();
                        prop_assert!(left + 1 >= old.list.pending.len(), "one at a time");
                    }
                    prop_assert_eq!(&marks.label, &after.label);
                }
                (before, after) => prop_assert!(false, "{before:?} became {after:?}"),
            }
            marks = after;
        }
    }

    /// A step takes effect once, for the version it was made for, and what it makes is what an update may make.
    #[test]
    fn step_patch_applies_once_and_is_an_allowed_update(names in 1..=3usize, fails in any::<bool>()) {
        let before = state(&NAMES[..names]);
        let marks = marked(&before);
        let object = json!({"metadata": {
            "name": "n", "uid": "u", "resourceVersion": "5",
            "labels": {PENDING_LABEL: marks.label, "a": "b"}, "annotations": {STATE_ANNOTATION: marks.state},
        }});
        let target = PatchTarget { uid: "u", resource_version: "5", marks: &marks };
        let after = if fails { before.failed(failure()) } else { before.done(NAMES[0], Vec::new()).unwrap() };
        let changes = vec![json!({"op": "add", "path": "/metadata/labels/by", "value": "a"})];
        let patch = MarksStep::to(&after).patch(target, changes).unwrap();
        let mut now = applied(&object, &patch).unwrap();
        prop_assert_eq!(&now["metadata"]["labels"]["by"], "a");
        let new = marks_of(&now);
        prop_assert_eq!(new.label.is_none(), !fails && names == 1);
        prop_assert_eq!(judge_update(&marks, &new, false, ANY), Ok(MarksOutcome::Keep));
        // Sent again, by us or another replica, it finds another state; nor does it change another version, or object.
        prop_assert!(applied(&now, &patch).is_err());
        now["metadata"]["resourceVersion"] = "6".into();
        prop_assert!(applied(&now, &patch).is_err());
        let mut other = object.clone();
        other["metadata"]["uid"] = "v".into();
        prop_assert!(applied(&other, &patch).is_err());
        let lost = Marks { state: None, ..marks.clone() };
        let mut object = object;
        object["metadata"]["annotations"] = json!({});
        let uncovered = MarksStep::Uncover.patch(PatchTarget { marks: &lost, ..target }, Vec::new()).unwrap();
        prop_assert_eq!(marks_of(&applied(&object, &uncovered).unwrap()), Marks::default());
        // One that cannot be read is left as that of a finished object: so an apiserver's policy takes it.
        let lost = Marks { state: Some(r#"{"state":"Pending"}"#.into()), ..marks.clone() };
        object["metadata"]["annotations"][STATE_ANNOTATION] = lost.state.as_deref().into();
        let uncovered = MarksStep::Uncover.patch(PatchTarget { marks: &lost, ..target }, Vec::new()).unwrap();
        let after = marks_of(&applied(&object, &uncovered).unwrap());
        prop_assert!(after.label.is_none() && after.is_finished() && after.state.is_some());
    }
}

#[test]
fn refused_update_names_the_mark() {
    let Err(ListError::Invalid { field, .. }) = judge_update(&Marks::default(), &marked(&state(&NAMES)), false, ANY)
    else {
        panic!("it is refused")
    };
    assert_eq!(field, "metadata.labels[init.gatepost.dev/pending]");
}
