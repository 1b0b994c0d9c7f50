use std::{
    borrow::Cow,
    cell::Cell,
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::Path,
};

use gatepost_json::{Cursor, EndsRecorder};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    AccessDecision, AccessDecisions, Allowance, Condition, ConditionsDecision, Effect, Evaluated, Input, JsonDocument,
    KubernetesVersion, Request, User, check, combined, decide,
    environment::{Environment, Expected},
    meter::{Fault, Stop},
    program::Program,
};

mod authorizer;
mod bounds;
mod policy;
mod trees;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cases {
    object: Box<RawValue>,
    old_object: Box<RawValue>,
    #[serde(default)]
    expressions: Vec<String>,
    /// Of a generated file.
    #[serde(default)]
    answers: Vec<Answer>,
}

#[derive(Clone, Deserialize, PartialEq, Debug)]
struct Answer {
    #[serde(default)]
    expression: String,
    refused: Option<String>,
    value: Option<bool>,
    error: Option<String>,
    cost: Option<u64>,
}

/// `tests/cel/changed.json`: cases that another version of `k8s.io/apiserver` answers otherwise.
#[derive(Deserialize)]
struct VersionChanges {
    follows: String,
    others: Vec<String>,
    changed: Vec<ChangedAnswer>,
}

#[derive(Deserialize)]
struct ChangedAnswer {
    expression: String,
    /// By version: the followed one, and each that differs from it.
    answers: BTreeMap<String, Answer>,
}

/// The version of `k8s.io/apiserver` by which `tests/cel/answers.json` is made.
const FOLLOWED: &str = "v0.37.2";

/// The releases of `k8s.io/apiserver` that stand for the versions of Kubernetes.
const RELEASES: [(&str, KubernetesVersion); 3] = [
    ("v0.36.3", KubernetesVersion::V1_36),
    (FOLLOWED, KubernetesVersion::V1_37),
    ("v0.38.0-alpha.2", KubernetesVersion::V1_38),
];

fn document(json: &str) -> Option<JsonDocument<'_>> {
    Some(JsonDocument::new(Cow::Borrowed(json.as_bytes())))
}

/// The request that `tests/cel/generate` makes.
fn input<'a>(object: &'a str, old_object: &'a str) -> Input<'a> {
    let mut request = Request::new(|| {
        Ok(User {
            uid: "u1".to_owned(),
            groups: vec!["dev".to_owned(), "ops".to_owned()],
            extra: vec![("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])],
        })
    });
    request.kind = ["apps", "v1", "Deployment"];
    request.request_kind = request.kind;
    request.resource = ["apps", "v1", "deployments"];
    (request.name, request.namespace, request.operation, request.username) = ("web", "default", "UPDATE", "alice");
    request.options = document(r#"{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl"}"#);
    let decisions = AccessDecisions::default();
    Input { request, object: document(object), old_object: document(old_object), namespace: None, decisions }
}

/// Compiles a condition of a webhook.
fn compile(text: &str) -> Result<Program, String> {
    compile_for(text, KubernetesVersion::default())
}

/// Compiles a condition of a webhook as this version does.
fn compile_for(text: &str, version: KubernetesVersion) -> Result<Program, String> {
    let environment = Environment::default().of_version(version);
    check::compile(text, &environment, Expected::Bool).map(|(program, _)| program)
}

fn with_steps<T>(steps: u64, run: impl FnOnce(&Allowance<'_>) -> T) -> T {
    let steps = Cell::new(steps);
    run(&Allowance { steps: &steps, over: &|| false })
}

/// Expressions with another result than upstream's, and the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("[1, 2, 3].existsOne(x, x > 2)", "the parser has it, as later versions of upstream's have"),
    ("google.protobuf.Timestamp{seconds: 1} == timestamp(1)", "messages are not made here"),
    ("{1.5: 'a'}.size() == 1", "keys that nothing can look up"),
    ("{null: 'a'}.size() == 1", "keys that nothing can look up"),
    ("[1].all(object, .object.spec.replicas == 3)", "parts of a hidden variable are free there, from 1.37 on"),
    (
        "[{'spec': 1}].exists(object, .object.spec == object.spec)",
        "parts of a hidden variable are free there, from 1.37 on",
    ),
    ("double('0x1p4') == 16.0", "no numbers to the base of sixteen"),
];

/// Compares an expression with its answer; returns the difference.
fn difference(answer: &Answer, version: KubernetesVersion, input: &mut Input<'_>) -> Option<String> {
    let text = &*answer.expression;
    let there = match (&answer.refused, answer.value, &answer.error) {
        (Some(_), ..) => "refused".to_owned(),
        (_, Some(value), _) => value.to_string(),
        _ => "error".to_owned(),
    };
    let compiled = compile_for(text, version);
    if let (Some(why), Err(message)) = (&answer.refused, &compiled)
        && why.contains("Syntax error")
        // Longer texts are cut here.
        && why.len() < 200
        && *message != format!("ERROR: <input>:{why}")
    {
        return Some(format!("{version}: {text}: {message}, there {why}"));
    }
    let (here, why, cost) = match compiled {
        Err(why) => ("refused".to_owned(), why, None),
        Ok(program) => match authorizer::evaluated(&program, input) {
            (Ok(value), cost) => (value.to_string(), String::new(), Some(cost)),
            (Err(fault), cost) => ("error".to_owned(), format!("{fault:?}"), Some(cost)),
        },
    };
    let is_same = here == there && (cost == answer.cost || here == "error");
    let why_there = answer.refused.as_ref().or(answer.error.as_ref());
    (!is_same).then(|| {
        format!("{version}: {text}: {here} for {cost:?} {why}, there {there} for {:?} {why_there:?}", answer.cost)
    })
}

/// What a difference of a generated expression says, and why it is intended.
const INTENDED: &[(&str, &str)] = &[
    ("map keys of type '", "keys that nothing can look up"),
    ("unsupported key type", "keys that nothing can look up"),
    ("messages cannot be constructed here", "messages are not made here"),
    ("is not known here: write it as Europe/Berlin or +01:00", "an unknown time zone is refused"),
    (".32768", "the limit on the size of a pattern is this crate's own"),
    ("%.9999999", "the limit on the size of a quantity is this crate's own"),
    ("0x1p4", "no numbers to the base of sixteen"),
    (".existsOne(", "the parser has it, as later versions of upstream's have"),
    ("internal error: interface conversion", "upstream's count of the cost panics"),
];

#[test]
fn expressions_have_the_values_of_kube_apiserver_in_each_version() {
    let cases: Cases = serde_json::from_str(include_str!("../../../tests/cel/cases.json")).unwrap();
    let answers: Vec<Answer> = serde_json::from_str(include_str!("../../../tests/cel/answers.json")).unwrap();
    let changes: VersionChanges = serde_json::from_str(include_str!("../../../tests/cel/changed.json")).unwrap();
    assert!(answers.len() > 1_000 && answers.len() == cases.expressions.len(), "generate the answers anew");
    let changed: BTreeMap<_, _> = changes.changed.iter().map(|one| (&*one.expression, &one.answers)).collect();
    let mut input = input(cases.object.get(), cases.old_object.get());
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for (answer, (release, version)) in answers.iter().flat_map(|answer| RELEASES.map(|release| (answer, release))) {
        let text = &*answer.expression;
        let mut answer = answer.clone();
        if let Some(other) = changed.get(text).and_then(|answers| answers.get(release)) {
            answer = Answer { expression: answer.expression, ..other.clone() };
        }
        let Some(difference) = difference(&answer, version, &mut input) else { continue };
        match DIFFERENT.iter().find(|(expression, _)| *expression == answer.expression) {
            Some((expression, _)) => used.push(*expression),
            None => wrong.push(difference),
        }
    }
    let unused = DIFFERENT.iter().filter(|(expression, _)| !used.contains(expression));
    wrong.extend(unused.map(|(expression, _)| format!("{expression}: no case")));
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), 3 * answers.len(), wrong.join("\n"));
    // Straight to stderr: what a test prints that passes is never seen.
    let say = |what: &str| writeln!(io::stderr().lock(), "{what}").unwrap();
    match std::env::var_os("GATEPOST_CEL_GENERATED") {
        Some(folder) => say(&compare_generated(folder.as_ref())),
        None => say("no generated expressions were compared: fuzz/cel-go.sh generates some"),
    }
}

/// Compares the cases that `fuzz/cel-go.sh` has generated: a folder for each version.
fn compare_generated(folder: &Path) -> String {
    let (mut wrong, mut compared) = (Vec::new(), BTreeMap::new());
    for (release, version) in RELEASES {
        let Ok(files) = fs::read_dir(folder.join(release)) else { continue };
        for file in files {
            let cases: Cases = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
            let mut input = input(cases.object.get(), cases.old_object.get());
            for answer in &cases.answers {
                let kind = match answer {
                    Answer { refused: Some(_), .. } => "refused",
                    Answer { error: Some(_), .. } => "errors",
                    _ => "values",
                };
                *compared.entry((release, kind)).or_insert(0) += 1;
                let difference = difference(answer, version, &mut input);
                let is_intended = |difference: &String| {
                    // Parts of a hidden variable are free there, from 1.37 on.
                    difference.contains("(object, ") && difference.contains(".object.")
                        || INTENDED.iter().any(|(what, _)| difference.contains(what))
                };
                match difference {
                    Some(difference) if is_intended(&difference) => {
                        *compared.entry((release, "intended")).or_insert(0) += 1
                    }
                    difference => wrong.extend(difference),
                }
            }
        }
    }
    assert!(!compared.is_empty(), "{}: no generated expressions", folder.display());
    assert!(wrong.is_empty(), "{} of {compared:?}:\n{}", wrong.len(), wrong.join("\n"));
    format!("generated expressions as kube-apiserver: {compared:?}")
}

/// What is otherwise in another version is known from the expression alone, and the other way round, but for values that
/// only the evaluation knows.
#[test]
fn changes_between_versions_are_found() {
    let changes: VersionChanges = serde_json::from_str(include_str!("../../../tests/cel/changed.json")).unwrap();
    let releases: Vec<_> =
        RELEASES.iter().map(|(release, _)| (*release).to_owned()).filter(|one| one != FOLLOWED).collect();
    assert_eq!((&*changes.follows, changes.others), (FOLLOWED, releases), "generate the answers anew");
    for ChangedAnswer { expression, answers } in changes.changed {
        let compiled = RELEASES.map(|(_, version)| compile_for(&expression, version));
        let found: Vec<_> = compiled.iter().flatten().flat_map(|program| &program.changes).collect();
        assert!(!found.is_empty(), "{expression}");
        for ((release, version), compiled) in RELEASES.iter().zip(&compiled) {
            let Some(answer) = answers.get(*release) else { continue };
            let effect = |wanted: fn(Effect) -> bool| found.iter().any(|change| wanted(change.effect));
            if answer.refused.is_some() && !effect(|effect| matches!(effect, Effect::Answer(_))) {
                assert!(effect(|effect| matches!(effect, Effect::Added | Effect::Removed)), "{expression}");
                let why = compiled.as_ref().unwrap_err();
                assert!(why.contains("Kubernetes 1.3"), "{version}: {expression}: {why}");
            } else if answer.value != answers[FOLLOWED].value && answers[FOLLOWED].refused.is_none() {
                assert!(effect(|effect| matches!(effect, Effect::Answer(_))), "{expression}");
            }
        }
    }
    // What is the same everywhere.
    for text in ["object.a.indexOf('x', 2) == 1", "lists.range(3) == []", "duration('1s') == duration('1s')"] {
        assert!(compile(text).unwrap().changes.is_empty(), "{text}");
    }
    for text in ["dyn(request.name) == 1", "dyn(object) == 1", "'`' == object.name"] {
        assert!(compile(text).unwrap().changes.is_empty(), "{text}");
    }
}

#[test]
fn older_version_names_what_it_lacks() {
    for (text, version, why) in [
        (
            "[1].includes(1)",
            KubernetesVersion::V1_36,
            "`includes` needs Kubernetes 1.37, and this is to compile in 1.36",
        ),
        (
            "cidr('10.0.0.0/8').isMask()",
            KubernetesVersion::V1_37,
            "`isMask` needs Kubernetes 1.38, and this is to compile in 1.37",
        ),
        (
            "object.`a` == 1",
            KubernetesVersion::V1_36,
            "`a name in backquotes` needs Kubernetes 1.37, and this is to compile in 1.36",
        ),
        (
            "duration(1) == duration('1s')",
            KubernetesVersion::V1_37,
            "Kubernetes 1.37 has no `duration of an int`, and this is to compile in 1.37",
        ),
    ] {
        assert_eq!(compile_for(text, version).unwrap_err(), why);
    }
}

/// A condition on an object of this JSON.
fn decided(expression: &str, object: &str) -> Result<bool, String> {
    let input = input(object, "null");
    let condition = [Condition::compile("c", expression).unwrap()];
    match with_steps(u64::MAX, |allowance| decide(&condition, &input, allowance)) {
        ConditionsDecision::Matches => Ok(true),
        ConditionsDecision::Excluded(_) => Ok(false),
        ConditionsDecision::Failed(why) => Err(why),
        ConditionsDecision::TooLong => Err("too long".to_owned()),
        ConditionsDecision::Undecided(check) => Err(format!("undecided: {check:?}")),
    }
}

#[test]
fn last_of_equal_keys_counts() {
    let object = r#"{"a":1,"b":{"x":1},"a":2,"b":{"y":1}}"#;
    assert_eq!(decided("object.a == 2 && !has(object.b.x) && has(object.b.y) && size(object) == 2", object), Ok(true));
    let many: Vec<_> = (0..100).map(|n| format!("\"k{}\":{n}", n % 50)).collect();
    let object = format!("{{ {} }}", many.join(" , "));
    assert_eq!(decided("object.k0 == 50 && object.k49 == 99 && size(object) == 50", &object), Ok(true));
    assert_eq!(decided("object.all(k, k.startsWith('k')) && !('k50' in object)", &object), Ok(true));
    // Equal keys of which one is written with an escape, among keys that are found by hash.
    let many: String = (0..30).map(|n| format!("\"k{n}\":{{}},")).collect();
    let object = format!(r#"{{{many}"\u006b0":{{"x":1}},"\u006bx":{{}},"kx":{{"y":1}},"k29":[2]}}"#);
    assert_eq!(decided("object.k0.x == 1 && object.kx.y == 1 && object.k29[0] == 2", &object), Ok(true));
    assert_eq!(decided("size(object) == 31 && object.k28 == {} && !('ky' in object)", &object), Ok(true));
}

#[test]
fn escaped_keys_are_found() {
    let object = r#" { "a\u0062c" : "\u00e9\n" , "a\"b" : 1, "ab" : 2 } "#;
    assert_eq!(decided(r#"object.abc == 'é\n' && object['a"b'] == 1 && object.ab == 2"#, object), Ok(true));
    assert_eq!(decided(r"!has(object.a) && !('a\\' in object)", object), Ok(true));
}

#[test]
fn unreadable_object_is_an_error_of_its_condition() {
    for (object, why) in [
        ("k8s\0 protobuf", "the object is written in protobuf, and can only be read in JSON"),
        ("{\"a\": oops}", "the object is not JSON at byte 6: expected a value"),
        ("", "the object is not JSON at byte 0: expected a value"),
    ] {
        assert_eq!(
            decided("object.a == 1", object),
            Err(format!("expression 'object.a == 1' resulted in error: {why}"))
        );
        assert_eq!(decided("request.name == 'web' || object.a == 1", object), Ok(true));
    }
}

#[test]
fn checked_and_recorded_documents_have_the_same_values() {
    let large = format!("[{}0]", "{\"name\":\"]}\"},".repeat(1_000));
    let many: String = (0..40).map(|n| format!("\"k\\u003{}{n}\":{n},", n % 10)).collect();
    let object = format!(
        r#"{{"a":{large},"metadata":{{"name":"first"}},{many}"spec":{{"l":{large},"x":{{"y":1}},"x":{{"y":2}}}},"metadata":{{"name":"last"}}}}"#
    );
    let mut noted = EndsRecorder::sparse();
    Cursor::new(&object).skip_recorded(&mut noted).unwrap();
    let ends = noted.relative_to(0).expect("it is large");
    let bytes = || Cow::Borrowed(object.as_bytes());
    let expressions = [
        "object.metadata.name == 'last' && object.spec.x.y == 2 && size(object) == 43",
        "object.a == object.spec.l && size(object.a) == 1001 && object.a[999].name == ']}'",
        "object.k00 == 0 && object.k939 == 39 && !('k1' in object) && object.all(k, k != '')",
        "object.spec.l[1000] == 0",
    ];
    for document in [JsonDocument::new(bytes()), JsonDocument::checked(bytes()), JsonDocument::recorded(bytes(), ends)]
    {
        let input = Input { object: Some(document), ..input("{}", "null") };
        for expression in expressions {
            let condition = [Condition::compile("c", expression).unwrap()];
            let decision = with_steps(u64::MAX, |allowance| decide(&condition, &input, allowance));
            assert_eq!(decision, ConditionsDecision::Matches, "{expression}");
        }
    }
}

#[test]
fn invalid_utf_8_is_replaced_as_in_go() {
    let bytes = b"{\"a\":\"x\xffy\"}";
    for document in [JsonDocument::new(Cow::Borrowed(bytes)), JsonDocument::new(Cow::Owned(bytes.to_vec()))] {
        let input = Input { object: Some(document), ..input("{}", "null") };
        let condition = [Condition::compile("c", "object.a == 'x\u{fffd}y'").unwrap()];
        assert_eq!(
            with_steps(u64::MAX, |allowance| decide(&condition, &input, allowance)),
            ConditionsDecision::Matches
        );
    }
}

#[test]
fn unused_containers_are_not_located() {
    let object = format!(r#"{{"metadata":{{"name":"web"}},"spec":{{"data":[{}1]}}}}"#, "{\"a\":[1,2]},".repeat(10_000));
    let input = input(&object, "null");
    let condition = [Condition::compile("c", "object.metadata.name == 'web' && has(object.spec)").unwrap()];
    let decision = with_steps(u64::MAX, |allowance| decide(&condition, &input, allowance));
    assert_eq!(decision, ConditionsDecision::Matches);
    assert_eq!(input.object.as_ref().unwrap().located_containers(), 2);
}

#[test]
fn only_containers_have_nodes() {
    for (list, nodes) in [("1,".repeat(10_000), 3), ("{},".repeat(10_000), 10_003), ("[],".repeat(10_000), 10_003)] {
        let object = format!(r#"{{"list":[{list}{{"a":1}},[2]]}}"#);
        let input = input(&object, "null");
        let expression = "object.list[10000].a == 1 && object.list[10001][0] == 2 && size(object.list) == 10002";
        let condition = [Condition::compile("c", expression).unwrap()];
        let decision = with_steps(u64::MAX, |allowance| decide(&condition, &input, allowance));
        assert_eq!(decision, ConditionsDecision::Matches);
        let object = input.object.as_ref().unwrap();
        assert_eq!((object.located_containers(), object.container_nodes()), (4, nodes));
    }
}

#[test]
fn large_container_counts_as_read_before_it_is_indexed() {
    // Whoever locates its values finds that it is not JSON.
    let object = format!(r#"{{"items":[1 1,{}1]}}"#, "1,".repeat(100_000));
    let end = object.len() as u32;
    let document = JsonDocument::recorded(Cow::Borrowed(object.as_bytes()), [(0, end), (9, end - 1)].into());
    let input = Input { object: Some(document), ..input("{}", "null") };
    let condition = [Condition::compile("c", "object.items[0] == 1").unwrap()];
    let decide = |steps| with_steps(steps, |allowance| decide(&condition, &input, allowance));
    // The object and the list are 6,250 steps each.
    assert_eq!(decide(10_000), ConditionsDecision::TooLong);
    assert!(matches!(decide(20_000), ConditionsDecision::Failed(why) if why.contains("not JSON")));
}

#[test]
fn evaluation_stops_at_its_allowance() {
    let object = format!(r#"{{"items":[{}1]}}"#, "1,".repeat(100_000));
    let input = input(&object, "null");
    let long = [Condition::compile("c", "object.items.all(x, x == 1)").unwrap()];
    assert_eq!(with_steps(10_000, |allowance| decide(&long, &input, allowance)), ConditionsDecision::TooLong);
    let short = [Condition::compile("c", "request.operation == 'UPDATE'").unwrap()];
    assert_eq!(with_steps(10, |allowance| decide(&short, &input, allowance)), ConditionsDecision::Matches);
    let steps = Cell::new(u64::MAX);
    let over = Allowance { steps: &steps, over: &|| true };
    let why = "expression 'object.items.all(x, x == 1)' resulted in error: operation interrupted";
    assert_eq!(decide(&long, &input, &over), ConditionsDecision::Failed(why.to_owned()));
}

#[test]
fn cost_is_limited_per_expression_and_in_total() {
    let input = input("{}", "null");
    let loops = "lists.range(400).all(x, lists.range(400).all(y, x + y >= 0))";
    let condition = Condition::compile("c", loops).unwrap();
    let (value, cost) = with_steps(u64::MAX, |allowance| condition.evaluate(&input, allowance));
    assert_eq!(value, Err(Fault::Stop(Stop::Cost)));
    assert!((1_000_001..1_010_000).contains(&cost), "{cost}");
    let all = |many: usize| -> Vec<_> { (0..many).map(|_| Condition::compile("c", loops).unwrap()).collect() };
    let why = |many: usize| {
        let conditions = all(many);
        match with_steps(u64::MAX, |allowance| decide(&conditions, &input, allowance)) {
            ConditionsDecision::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(why(2).ends_with("operation cancelled: actual cost limit exceeded"), "{}", why(2));
    assert_eq!(why(3), "validation failed due to running out of cost budget, no further validation rules will be run");
}

#[test]
fn hostile_expressions_are_rejected_or_end() {
    let chain = |unit: &str, many: usize| vec![unit; many].join("");
    let hostile = [
        chain("(", 5_000),
        chain("[", 5_000),
        chain("!", 5_000),
        chain("-", 5_000),
        format!("{}true", chain("true?", 3_000)),
        format!("{}true", chain("true?true:", 190)),
        format!("{}1==1", chain("1+", 3_000)),
        format!("object{}", chain(".a", 3_000)),
        format!("object{}", chain("[0]", 2_000)),
        format!("true{}", chain("||true", 2_000)),
        format!("optional.of(1){}.value()==1", chain(".optMap(x,x)", 40)),
        format!("{}true{}", chain("[1].all(x,", 60), chain(")", 60)),
        format!("{}1{}==1", chain("{1:", 60), chain("}", 60)),
        chain("a", 100_000),
        "'".repeat(10_000),
        "\u{0}\u{1}\\".to_owned(),
        "é.ü".to_owned(),
        "1.0e999 == 1.0".to_owned(),
        "99999999999999999999 == 1".to_owned(),
        "'\\ud800' == ''".to_owned(),
        "'\\U00110000' == ''".to_owned(),
    ];
    let input = input("{}", "null");
    for expression in hostile {
        if let Ok(condition) = Condition::compile("c", &expression) {
            let conditions = [condition];
            with_steps(10_000_000, |allowance| _ = decide(&conditions, &input, allowance));
        }
    }
}

#[test]
fn hostile_objects_end() {
    let nest = |open: &str, close: &str, many: usize| format!("{{\"a\":{}1{}}}", open.repeat(many), close.repeat(many));
    let deep = nest("[", "]", 9_000);
    assert!(decided("object.a == object.a", &deep).unwrap_err().ends_with("the values are nested too deep"));
    let maps = nest("{\"a\":", "}", 9_000);
    assert!(decided("object == oldObject || object.a == object.a", &maps).is_err());
    assert_eq!(decided("has(object.a.a.a.a)", &maps), Ok(true));
    let long = format!("{{\"a\":\"{}\"}}", "a".repeat(1 << 20));
    assert!(decided("object.a.matches('(a+)+$')", &long).is_ok());
    assert!(decided("object.a.replace('', object.a) == ''", &long).unwrap_err().ends_with(MADE));
    let numbers = r#"{"a":[1e400,-0,0.1e-400,123456789012345678901234567890]}"#;
    assert_eq!(decided("object.a[1] == 0 && object.a[3] > 1.0e29", numbers), Ok(true));
}

/// Failure of an expression that makes too much.
const MADE: &str = "the expression makes more than 16 MiB of text";
const LISTED: &str = "the expression holds lists of more than 1,048,576 items";

#[test]
fn made_text_is_bounded() {
    let items: Vec<_> = (0..3000).map(|n| n.to_string()).collect();
    let object = format!(r#"{{"s":"{}","l":[{}]}}"#, "a".repeat(100_000), items.join(","));
    for expression in [
        "object.l.map(i, object.s + object.s).size() >= 0",
        "object.l.map(i, [object.s].join(',') + 'x').size() >= 0",
        "object.l.map(i, object.s.upperAscii()).size() >= 0",
        "[object.s + 'x'].exists(t, object.l.map(i, t.substring(1)).size() > 0)",
        "object.l.map(i, object.l + object.l).size() >= 0",
        "object.l.map(i, bytes(object.s) + b'x').size() >= 0",
    ] {
        let ended = decided(expression, &object);
        let why = ended.expect_err(expression);
        assert!(
            [MADE, LISTED, "cost limit exceeded"].iter().any(|ending| why.ends_with(ending)),
            "{expression}: {why}"
        );
    }
    assert_eq!(decided("(object.s + object.s).size() == 200000", &object), Ok(true));
}

/// Steps that one evaluation takes.
fn steps_of(expression: &str, object: &str) -> u64 {
    let input = input(object, "null");
    let condition = [Condition::compile("c", expression).unwrap()];
    let steps = Cell::new(u64::MAX);
    let allowance = Allowance { steps: &steps, over: &|| false };
    let _ = decide(&condition, &input, &allowance);
    u64::MAX - steps.get()
}

#[test]
fn long_string_is_read_and_counted_once() {
    let object = |len: usize| {
        format!(r#"{{"s":"{}","e":"\\n{}","l":[{}1]}}"#, "a".repeat(len), "b".repeat(len), "1,".repeat(999))
    };
    for field in ["s", "e"] {
        let rounds = format!("object.l.all(i, has(object.{field}) && '{field}' in object)");
        let (short, long) = (steps_of(&rounds, &object(1)), steps_of(&rounds, &object(100_000)));
        // 1,000 rounds, and what is read is read once for locating it and once for its value.
        assert!((6_000..14_000).contains(&(long - short)), "{field}: {} steps more", long - short);
    }
}

#[test]
fn conditions_are_combined_as_upstream_does() {
    let ok = |name, value| Evaluated::Value(name, Ok(value));
    let failed = |name, why: &str| Evaluated::Value(name, Err(why.to_owned()));
    assert_eq!(combined([]), ConditionsDecision::Matches);
    assert_eq!(combined([failed("a", "x"), ok("b", false)]), ConditionsDecision::Excluded("b"));
    assert_eq!(combined([ok("a", true), failed("b", "x")]), ConditionsDecision::Failed("x".to_owned()));
    let twice = [failed("a", "x"), failed("b", "y"), failed("c", "x")];
    assert_eq!(combined(twice), ConditionsDecision::Failed("[x, y]".to_owned()));
}

#[test]
fn compile_errors_name_the_fault() {
    for (expression, why) in [
        ("request.nmae == 'x'", "undefined field 'nmae'"),
        ("objct.metadata.name == 'x'", "undeclared reference to 'objct'"),
        ("object.metadata.name", "must evaluate to bool but got dyn"),
        ("request.name", "must evaluate to bool but got string"),
        ("request.name == 1", "found no matching overload for '_==_' applied to '(string, int)'"),
        ("request.name ==", "ERROR: <input>:1:16: Syntax error: mismatched input '<EOF>' expecting {'[', '{', "),
        ("true &&\n  'é' == for", "ERROR: <input>:2:10: reserved identifier: for"),
        ("authorizer.path('/x').check('get').denied()", "undeclared reference to 'denied'"),
        (
            "'%d'.format([request.name]) == ''",
            "error during formatting: decimal clause can only be used on integers, was \
                                               given string",
        ),
        ("{[1]: 2}.size() == 1", "map keys of type 'list(int)' are not supported"),
        ("request.name.matches('[')", "invalid matches argument"),
    ] {
        let message = Condition::compile("c", expression).unwrap_err();
        assert!(message.starts_with(why), "{expression}: {message}");
    }
}

#[test]
fn time_zones_have_names_and_summer_time() {
    let hours = |day: &str, zone: &str| {
        let expression = format!(
            "timestamp(object.{day}).getHours(object.{zone}) * 100 + timestamp(object.{day}).getMinutes(object.{zone}) == object.at"
        );
        move |at: u32| {
            let zones = r#""berlin":"Europe/Berlin","kolkata":"Asia/Kolkata","lower":"europe/berlin","mars":"Mars/Phobos","local":"Local","gmt":"Etc/GMT+2""#;
            decided(
                &expression,
                &format!(r#"{{"summer":"2024-07-01T12:00:00Z","winter":"2024-01-01T12:00:00Z",{zones},"at":{at}}}"#),
            )
        }
    };
    assert_eq!(hours("summer", "berlin")(1400), Ok(true));
    assert_eq!(hours("winter", "berlin")(1300), Ok(true));
    assert_eq!(hours("winter", "kolkata")(1730), Ok(true));
    assert_eq!(hours("summer", "gmt")(1000), Ok(true));
    for unknown in ["lower", "mars", "local"] {
        assert!(hours("summer", unknown)(1400).is_err(), "{unknown}");
    }
    let literal =
        |zone: &str| Condition::compile("c", &format!("timestamp('2024-07-01T12:00:00Z').getHours('{zone}') == 14"));
    assert!(literal("Europe/Berlin").is_ok());
    assert!(literal("Mars/Phobos").unwrap_err().starts_with("time zone 'Mars/Phobos' is not known here"));
}
