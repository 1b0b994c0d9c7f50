//! Expressions of policies. The answers and costs are those of `k8s.io/apiserver` v0.37.2
//! (`pkg/admission/plugin/cel` and `policy/mutating/patch`), asked with the same objects.

use crate::{Environment, Evaluation, Evaluator, Expected, Expression, Failure, Output, tests::*};

const OBJECT: &str =
    r#"{"metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":3,"half":0.5,"list":[1,{"x":null}]}}"#;
const NAMESPACE: &str = r#"{"metadata":{"name":"default","labels":{"team":"x"},"creationTimestamp":"2023-11-14T22:13:20Z"},"spec":{},"status":{}}"#;
const PARAMS: &str = r#"{"metadata":{"name":"p"},"max":3}"#;

/// A loop that costs more than one expression may.
const EXPENSIVE: &str = "lists.range(400).all(x, lists.range(400).all(y, x + y >= 0))";

type Variables = Vec<(Box<str>, Expression)>;

/// Declares variables in order.
fn declare(environment: &mut Environment, variables: &[(&str, &str)]) -> Variables {
    let mut declared = Variables::new();
    for (name, text) in variables {
        let expression = Expression::compile(text, environment, Expected::Any).unwrap();
        environment.declare(name, &expression).unwrap();
        declared.push(((*name).into(), expression));
    }
    declared
}

fn policy_input() -> Input<'static> {
    Input { namespace: document(NAMESPACE), ..input(OBJECT, "null") }
}

/// Value or error of an expression, and its cost with the cost of the variables.
fn evaluate(text: &str, environment: &Environment, variables: &Variables, expected: Expected) -> (String, u64) {
    let mut input = policy_input();
    loop {
        match evaluate_once(text, environment, variables, expected, &input) {
            Evaluation { result: Err(Failure::Undecided(check)), .. } => {
                let allowed = AccessDecision { allowed: true, ..AccessDecision::default() };
                input.decisions.insert(*check, Ok(allowed));
            }
            Evaluation { result, cost, variables_cost } => {
                let shown = match result {
                    Ok(Output::Bool(yes)) => yes.to_string(),
                    Ok(Output::String(text)) => format!("'{text}'"),
                    Ok(Output::Null) => "null".to_owned(),
                    Ok(Output::Json(text)) => text,
                    Err(Failure::Error(why)) => format!("error: {why}"),
                    Err(Failure::Conversion(why)) => format!("conversion: {why}"),
                    Err(other) => panic!("{text}: {other:?}"),
                };
                return (shown, cost + variables_cost);
            }
        }
    }
}

fn evaluate_once(
    text: &str,
    environment: &Environment,
    variables: &Variables,
    expected: Expected,
    input: &Input<'_>,
) -> Evaluation {
    let expression = match Expression::compile(text, environment, expected) {
        Ok(expression) => expression,
        Err(why) => {
            return Evaluation { result: Err(Failure::Error(format!("refused: {why}"))), cost: 0, variables_cost: 0 };
        }
    };
    let params = document(PARAMS);
    let evaluator = Evaluator::new(input, params.as_ref(), variables);
    with_steps(u64::MAX, |allowance| evaluator.evaluate(&expression, allowance))
}

/// Compares answers and costs.
fn assert_answers(environment: &Environment, variables: &Variables, expected: Expected, answers: &[(&str, &str, u64)]) {
    for (text, answer, price) in answers {
        let (shown, cost) = evaluate(text, environment, variables, expected);
        assert_eq!(shown, *answer, "{text}");
        assert!(cost == *price || shown.starts_with("error: refused"), "{text}: {cost} and not {price}");
    }
}

const VARIABLES: &[(&str, &str)] = &[
    ("a", "object.spec.replicas"),
    ("b", "variables.a + 1"),
    ("s", "'x' + object.metadata.name"),
    ("bad", "object.nope"),
    ("opt", "object.?nope"),
    ("k", "request.kind"),
    ("l", "['a']"),
    ("n", "null"),
    ("exp", EXPENSIVE),
    ("au", "authorizer.path('/x').check('get').allowed()"),
    ("t", "timestamp('2024-01-01T00:00:00Z')"),
    ("m", "{'a': 1}"),
    ("ty", "type(1)"),
];

#[test]
fn variables_have_values_errors_and_costs_of_upstream() {
    let mut environment = Environment::policy(true);
    let variables = declare(&mut environment, VARIABLES);
    assert_answers(
        &environment,
        &variables,
        Expected::Any,
        &[
            ("variables.a == 3", "true", 6),
            ("variables.b == 4", "true", 9),
            ("variables.b + variables.a == 7", "true", 12),
            ("variables.a > 2 && variables.b > 2 && variables.a < 9", "true", 15),
            ("has(variables.a)", "true", 4),
            ("has(variables.bad)", "error: composited variable \"bad\" fails to evaluate: no such key: nope", 3),
            ("variables.bad == 1", "error: composited variable \"bad\" fails to evaluate: no such key: nope", 5),
            ("variables.bad == 1 || true", "true", 5),
            ("variables.?a.hasValue()", "true", 6),
            ("variables.?bad", "error: composited variable \"bad\" fails to evaluate: no such key: nope", 3),
            ("variables.opt.hasValue()", "false", 4),
            ("variables.k.kind", "'Deployment'", 5),
            ("variables.k.nope", "error: no such key: nope", 5),
            ("variables.l[0]", "'a'", 3),
            ("variables.l == ['a']", "true", 3),
            ("variables.n == null", "true", 3),
            (
                "variables.exp",
                "error: composited variable \"exp\" fails to evaluate: operation cancelled: actual cost limit exceeded",
                1_000_003,
            ),
            ("variables.exp || true", "true", 1_000_003),
            ("variables.au", "true", 350_005),
            ("variables.t.getFullYear() == 2024", "true", 4),
            ("variables.m.a == 1", "true", 4),
            ("variables.m['a'] == 1", "true", 4),
            ("variables.ty == int", "true", 3),
            ("variables.s.startsWith('xw')", "true", 7),
            ("[1].all(variables, variables == 1)", "true", 6),
            ("has(variables.nope)", "error: refused: undefined field 'nope'", 0),
            ("variables.nope", "error: refused: undefined field 'nope'", 0),
            ("variables.s + 1", "error: refused: found no matching overload for '_+_' applied to '(string, int)'", 0),
            ("variables", "error: refused: 'variables' has no value of its own: write variables.NAME", 0),
            ("dyn(variables).a", "error: refused: 'variables' has no value of its own: write variables.NAME", 0),
        ],
    );
}

#[test]
fn params_and_namespace_have_the_values_of_upstream() {
    let mut environment = Environment::policy(true);
    let variables = declare(&mut environment, VARIABLES);
    assert_answers(
        &environment,
        &variables,
        Expected::Any,
        &[
            ("params.max == variables.a", "true", 8),
            ("has(params.max)", "true", 1),
            ("params.nope", "error: no such key: nope", 2),
            ("namespaceObject.metadata.name", "'default'", 3),
            ("namespaceObject.metadata.labels.team", "'x'", 4),
            ("has(namespaceObject.metadata.labels)", "true", 2),
            // Upstream declares a timestamp, and gives a string.
            ("namespaceObject.metadata.creationTimestamp == timestamp('2023-11-14T22:13:20Z')", "false", 4),
            ("namespaceObject.metadata.UID", "error: no such key: UID", 3),
            ("namespaceObject.spec.finalizers", "error: no such key: finalizers", 3),
            ("has(namespaceObject.status.phase)", "false", 2),
            ("namespaceObject.metadata.nope", "error: refused: undefined field 'nope'", 0),
        ],
    );
    let without = Environment::policy(false);
    let none = Variables::new();
    assert_answers(
        &without,
        &none,
        Expected::Any,
        &[
            ("params", "error: refused: undeclared reference to 'params'", 0),
            ("jsonpatch.escapeKey('a')", "error: refused: undeclared reference to 'jsonpatch'", 0),
        ],
    );
    let (shown, _) = evaluate("Object{a: 1} == null", &without, &none, Expected::Any);
    assert!(shown.contains("refused: messages"), "{shown}");
}

#[test]
fn params_and_namespace_are_null_if_there_are_none() {
    let environment = Environment::policy(true);
    let (input, variables) = (input(OBJECT, "null"), Variables::new());
    let expression = Expression::compile("params == null && namespaceObject == null", &environment, Expected::Bool);
    let expression = expression.unwrap();
    let evaluator = Evaluator::new(&input, None, &variables);
    let evaluation = with_steps(u64::MAX, |allowance| evaluator.evaluate(&expression, allowance));
    assert_eq!(evaluation.result, Ok(Output::Bool(true)));
    let input = policy_input();
    let conditions = [Condition::compile_in("c", "namespaceObject == null", &environment).unwrap()];
    let evaluator = Evaluator::new(&input, None, &variables);
    let decided = with_steps(u64::MAX, |allowance| evaluator.decide(&conditions, allowance));
    assert_eq!(decided, ConditionsDecision::Excluded("c"));
    let evaluator = Evaluator::new(&input, None, &variables).without_namespace();
    let decided = with_steps(u64::MAX, |allowance| evaluator.decide(&conditions, allowance));
    assert_eq!(decided, ConditionsDecision::Matches);
}

#[test]
fn authorizer_is_missing_where_upstream_binds_none() {
    let mut environment = Environment::policy(false);
    let variables = declare(
        &mut environment,
        &[
            ("a", "authorizer.path('/x').check('get').allowed()"),
            ("b", "authorizer.requestResource.check('get').allowed()"),
        ],
    );
    let input = policy_input();
    let result = |text: &str| {
        let expression = Expression::compile(text, &environment, Expected::Any).unwrap();
        let evaluator = Evaluator::new(&input, None, &variables).without_authorizer();
        with_steps(u64::MAX, |allowance| evaluator.evaluate(&expression, allowance)).result
    };
    let error = |why: &str| Err(Failure::Error(why.to_owned()));
    assert_eq!(
        result("variables.a"),
        error("composited variable \"a\" fails to evaluate: no such attribute(s): authorizer")
    );
    assert_eq!(
        result("variables.b"),
        error("composited variable \"b\" fails to evaluate: no such attribute(s): authorizer.requestResource")
    );
    assert_eq!(result("authorizer.path('/x').check('get').allowed()"), error("no such attribute(s): authorizer"));
    assert_eq!(result("variables.a || true"), Ok(Output::Bool(true)));
    let messages = environment.clone().without_authorizer();
    let why = Expression::compile("string(authorizer.path('/').check('get').allowed())", &messages, Expected::String);
    assert_eq!(why.unwrap_err(), "undeclared reference to 'authorizer'");
    let why = Expression::compile("authorizer.requestResource.check('get').reason()", &messages, Expected::String);
    assert_eq!(why.unwrap_err(), "undeclared reference to 'authorizer'");
}

#[test]
fn types_that_do_not_fit_are_named_as_upstream_names_them() {
    let environment = Environment::policy(false).with_patch_types();
    for (expected, text, why) in [
        (Expected::Bool, "object", "must evaluate to bool but got dyn"),
        (Expected::Bool, "null", "must evaluate to bool but got null_type"),
        (Expected::Bool, "{'a': dyn(1)}", "must evaluate to bool but got map(string, dyn)"),
        (Expected::Bool, "optional.of(1)", "must evaluate to bool but got optional_type(int)"),
        (Expected::Bool, "[null]", "must evaluate to bool but got list(null_type)"),
        (Expected::Bool, "duration('1s')", "must evaluate to bool but got google.protobuf.Duration"),
        (Expected::String, "object", "must evaluate to string but got dyn"),
        (Expected::String, "null", "must evaluate to string but got null_type"),
        (Expected::StringOrNull, "object", "must evaluate to one of [string null_type] but got dyn"),
        (Expected::StringOrNull, "1", "must evaluate to one of [string null_type] but got int"),
        (Expected::ObjectPatch, "Object.spec{}", "must evaluate to Object but got Object.spec"),
        (Expected::ObjectPatch, "object", "must evaluate to Object but got dyn"),
        (Expected::ObjectPatch, "JSONPatch{}", "must evaluate to Object but got JSONPatch"),
        (Expected::JsonPatch, "[]", "must evaluate to list(JSONPatch) but got list(dyn)"),
        (Expected::JsonPatch, "[1]", "must evaluate to list(JSONPatch) but got list(int)"),
        (Expected::JsonPatch, "JSONPatch{}", "must evaluate to list(JSONPatch) but got JSONPatch"),
    ] {
        assert_eq!(Expression::compile(text, &environment, expected).unwrap_err(), why, "{text}");
    }
    for (expected, text) in [
        (Expected::StringOrNull, "null"),
        (Expected::StringOrNull, "'a'"),
        (Expected::String, "'a' + 'b'"),
        (Expected::Any, "object"),
    ] {
        assert!(Expression::compile(text, &environment, expected).is_ok(), "{text}");
    }
}

#[test]
fn object_patches_are_those_of_upstream() {
    let environment = Environment::policy(false).with_patch_types();
    let applying = "conversion: error applying patch: failed to convert patch object to typed object: ";
    let no_value = |of: &str| format!("{applying}a value of the type {of} is not one of an unstructured object");
    let (values, maps) = (no_value("[]ref.Val"), no_value("map[ref.Val]ref.Val"));
    let (null, time, bytes, uint) =
        (no_value("structpb.NullValue"), no_value("time.Time"), no_value("[]uint8"), no_value("uint64"));
    assert_answers(
        &environment,
        &Variables::new(),
        Expected::ObjectPatch,
        &[
            ("Object{}", "{}", 40),
            (
                "Object{spec: Object.spec{replicas: 5, b: 1.5, c: 'x', e: [1, 2], f: {'a': 'b'}, g: true, i: 1.0}}",
                r#"{"spec":{"replicas":5,"b":1.5,"c":"x","e":[1,2],"f":{"a":"b"},"g":true,"i":1}}"#,
                80,
            ),
            (
                "Object{spec: Object.spec{c: [Object.spec.c{name: 'x'}, Object.spec.c{name: 'y'}]}}",
                r#"{"spec":{"c":[{"name":"x"},{"name":"y"}]}}"#,
                170,
            ),
            (
                "Object{spec: Object.wrong{}}",
                "conversion: type mismatch: unexpected type name \"Object.wrong\", expected \"Object.spec\", which matches \
             field name path from root Object type",
                80,
            ),
            (
                "Object{spec: Object.spec{c: [Object.spec.d{name: 'x'}]}}",
                "conversion: type mismatch: unexpected type name \"Object.spec.d\", expected \"Object.spec.c\", which \
             matches field name path from root Object type",
                130,
            ),
            ("Object{a: object.metadata.labels}", r#"{"a":{"a":"b"}}"#, 43),
            ("Object{a: request.userInfo.groups}", r#"{"a":["dev","ops"]}"#, 43),
            ("Object{a: request.kind}", r#"{"a":{"group":"apps","kind":"Deployment","version":"v1"}}"#, 42),
            ("Object{a: namespaceObject.metadata.labels}", r#"{"a":{"team":"x"}}"#, 43),
            ("Object{a: optional.of(1)}", r#"{"a":1}"#, 41),
            ("Object{?a: object.?nope}", "{}", 41),
            ("Object{?a: object.metadata.?name}", r#"{"a":"web"}"#, 43),
            ("Object{a: 9007199254740993}", r#"{"a":9007199254740993}"#, 40),
            ("Object{a: 'x'.split('')}", r#"{"a":["x"]}"#, 41),
            ("Object{a: [{'c': 1}] + [{'d': 2}]}", r#"{"a":[{"c":1},{"d":2}]}"#, 41),
            ("Object{a: object.spec.list.map(i, i)}", r#"{"a":[1,{"x":null}]}"#, 70),
            ("Object{a: Object.a{b: 1}.b}", r#"{"a":1}"#, 82),
            ("Object{a: Object{a: 1} == Object{a: 1}}", r#"{"a":true}"#, 121),
            ("Object{a: Object{a: 1} == Object{a: 2}}", r#"{"a":false}"#, 121),
            ("has(Object{a: 1}.a) ? Object{} : Object{b: 1}", "{}", 81),
            ("optional.ofNonZeroValue(Object{}).orValue(Object{c: 1})", r#"{"c":1}"#, 81),
            ("Object{a: [[1]]}", &values, 40),
            ("Object{a: {'b': {'c': 1}}}", &maps, 40),
            ("Object{a: [{'c': 1}]}", &maps, 40),
            ("Object{a: ['a'].map(i, {'n': i})}", &maps, 84),
            ("Object{a: null}", &null, 40),
            ("Object{a: object.spec.list}", &null, 43),
            ("Object{a: timestamp('2024-01-01T00:00:00Z')}", &time, 40),
            ("Object{a: b'ab'}", &bytes, 40),
            ("Object{a: 3u}", &uint, 40),
            (
                "Object{a: {1: 2}}",
                "conversion: invalid return type: *dynamic.ObjectVal: map key is of type int, not string",
                40,
            ),
            ("Object{?a: 1}", "error: refused: expected type 'optional_type' but found 'int'", 0),
            ("Foo{}", "error: refused: undeclared reference to 'Foo'", 0),
            ("Objectx{}", "error: refused: undeclared reference to 'Objectx'", 0),
            ("Object{a: 1, a: 2}", "error: refused: the field 'a' is set twice", 0),
            (
                "true ? Object{} : Object.a{}",
                "error: refused: found no matching overload for '_?_:_' applied to '(bool, Object, Object.a)'",
                0,
            ),
        ],
    );
}

#[test]
fn json_patches_are_those_of_upstream() {
    let environment = Environment::policy(false).with_patch_types();
    for (value, json, cost) in [
        ("1", "1", 50),
        ("1.0", "1", 50),
        ("9007199254740991", "9007199254740991", 50),
        ("9007199254740993", "\"9007199254740993\"", 50),
        ("-9007199254740993", "\"-9007199254740993\"", 50),
        ("9007199254740992u", "\"9007199254740992\"", 50),
        ("Object.a{b: 9007199254740993}", r#"{"b":9007199254740992}"#, 90),
        ("1e21", "1e+21", 50),
        ("1e20", "100000000000000000000", 50),
        ("0.0000001", "1e-7", 50),
        ("0.1", "0.1", 50),
        ("-1.5", "-1.5", 50),
        ("b'ab'", "\"YWI=\"", 50),
        ("duration('90s')", "\"90s\"", 50),
        ("timestamp('2024-01-01T00:00:00Z')", "\"2024-01-01T00:00:00Z\"", 50),
        ("null", "null", 50),
        ("{'a': [1, 2], 'b': [3]}", r#"{"a":[1,2],"b":[3]}"#, 50),
        ("[{'a': 1}, {'b': 2}]", r#"[{"a":1},{"b":2}]"#, 50),
        ("object.spec", r#"{"replicas":3,"half":0.5,"list":[1,{"x":null}]}"#, 52),
        ("Object.spec{a: b'ab', t: [1, 2]}", r#"{"a":"YWI=","t":[1,2]}"#, 90),
        ("[Object.spec{a: Object.spec.b{}}]", r#"[{"a":{}}]"#, 140),
        ("optional.of(1)", "1", 51),
        ("JSONPatch{op: 'a'} == JSONPatch{op: 'a', from: ''}", "true", 131),
        ("'x'.split('')", r#"["x"]"#, 51),
        ("Object.spec{a: 'x'.split('')}", r#"{"a":["x"]}"#, 91),
        ("'\\\"\\\\\\u0001é'", r#""\"\\\u0001é""#, 50),
    ] {
        let text = format!("[JSONPatch{{op: 'add', path: '/a', value: {value}}}]");
        let patch = format!(r#"[{{"op":"add","path":"/a","value":{json}}}]"#);
        assert_eq!(evaluate(&text, &environment, &Variables::new(), Expected::JsonPatch), (patch, cost), "{value}");
    }
    let failed = "conversion: JSONPath valueExpression evaluated to a type that could not marshal to JSON: ";
    for (value, why) in [
        (
            "double('NaN')",
            "json: error calling MarshalJSON for type *structpb.Value: proto: google.protobuf.Value.number_value: \
             invalid NaN value",
        ),
        ("{1: 2}", "unsupported type conversion from 'int' to string"),
        ("request.userInfo.groups", "type conversion error from 'list(dyn)' to '*structpb.Value'"),
        ("request.kind", "type conversion error from struct type v1.GroupVersionKind to *structpb.Value"),
        ("namespaceObject.metadata.labels", "type conversion error from 'map(dyn, dyn)' to '*structpb.Value'"),
        ("Object.spec{a: null}", "proto: invalid type: structpb.NullValue"),
        ("Object.spec{a: object.spec.list}", "proto: invalid type: structpb.NullValue"),
        ("Object.spec{a: duration('1s')}", "proto: invalid type: time.Duration"),
        ("Object.spec{a: [{'a': 1}]}", "proto: invalid type: map[ref.Val]ref.Val"),
        ("JSONPatch{op: 'add'}", "cannot convert to native type: *structpb.Value"),
        ("optional.none()", "optional.none() dereference"),
        ("quantity('1')", "type conversion error from 'Quantity' to '*structpb.Value'"),
        ("type(1)", "type conversion not supported for 'type'"),
    ] {
        let text = format!("[JSONPatch{{op: 'add', path: '/a', value: {value}}}]");
        let (shown, _) = evaluate(&text, &environment, &Variables::new(), Expected::JsonPatch);
        assert_eq!(shown, format!("{failed}{why}"), "{value}");
    }
    assert_answers(
        &environment,
        &Variables::new(),
        Expected::JsonPatch,
        &[
            ("[JSONPatch{}]", r#"[{"op":"","path":""}]"#, 50),
            (
                "[JSONPatch{op: 'test', path: '/a', value: 1}, JSONPatch{op: 'move', path: '/a', from: '/b'}]",
                r#"[{"op":"test","path":"/a","value":1},{"op":"move","path":"/a","from":"/b"}]"#,
                90,
            ),
            (
                "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('k8s.io/my~label'), value: 'x'}]",
                r#"[{"op":"add","path":"/metadata/labels/k8s.io~1my~0label","value":"x"}]"#,
                56,
            ),
            ("[JSONPatch{op: JSONPatch{op: 'add'}.op, path: JSONPatch{}.from}]", r#"[{"op":"add","path":""}]"#, 134),
            (
                "has(JSONPatch{op: 'add'}.op) && !has(JSONPatch{op: ''}.op) && has(JSONPatch{value: 1}.value) ? \
             [JSONPatch{op: 'test'}] : []",
                r#"[{"op":"test","path":""}]"#,
                174,
            ),
            ("[JSONPatch{value: JSONPatch{}.value}]", r#"[{"op":"","path":"","value":null}]"#, 92),
            (
                "object.spec.list.map(i, JSONPatch{op: 'add', path: '/x', value: i})",
                r#"[{"op":"add","path":"/x","value":1},{"op":"add","path":"/x","value":{"x":null}}]"#,
                110,
            ),
            ("object.?nope.hasValue() ? [JSONPatch{op: 'a'}] : []", "[]", 2),
            ("[JSONPatch{op: 'a', value: object.spec.list[114514]}]", "error: index out of bounds: 114514", 54),
            ("[JSONPatch{op: dyn(1)}]", "error: unexpected type int64 for JSONPatchType 'op' field", 50),
            (
                "[JSONPatch{op: 1}]",
                "error: refused: expected type of field 'op' is 'string' but provided type is 'int'",
                0,
            ),
            ("[JSONPatch{foo: 'x'}]", "error: refused: undefined field 'foo'", 0),
            (
                "[JSONPatch{op: 'add', path: '/a', value: Object.spec{a: Object.spec.b{}}}]",
                "conversion: type mismatch: unexpected type name \"Object.spec.b\", expected \"Object.spec.a\", which \
             matches field name path from root Object type",
                130,
            ),
        ],
    );
}

#[test]
fn variable_is_evaluated_once_and_its_cost_reported_once() {
    let mut environment = Environment::policy(false);
    let variables = declare(&mut environment, &[("a", "object.spec.replicas"), ("b", "variables.a + 1")]);
    let compile = |text: &str| Expression::compile(text, &environment, Expected::Bool).unwrap();
    let (first, second) = (compile("variables.b == 4"), compile("variables.b > variables.a"));
    let input = policy_input();
    let evaluator = Evaluator::new(&input, None, &variables);
    let costs = |expression| {
        let evaluation = with_steps(u64::MAX, |allowance| evaluator.evaluate(expression, allowance));
        assert_eq!(evaluation.result, Ok(Output::Bool(true)));
        (evaluation.cost, evaluation.variables_cost)
    };
    assert_eq!(costs(&first), (3, 6));
    assert_eq!(costs(&second), (5, 0));
}

#[test]
fn unfinished_variable_is_evaluated_again() {
    let mut environment = Environment::policy(false);
    let variables = declare(
        &mut environment,
        &[("long", "lists.range(300).all(x, x >= 0)"), ("allowed", "authorizer.path('/x').check('get').allowed()")],
    );
    let long = Expression::compile("variables.long || true", &environment, Expected::Bool).unwrap();
    let mut input = policy_input();
    {
        let evaluator = Evaluator::new(&input, None, &variables);
        let short = with_steps(50, |allowance| evaluator.evaluate(&long, allowance));
        assert_eq!((short.result, short.variables_cost), (Err(Failure::TooLong), 0));
        let whole = with_steps(100_000, |allowance| evaluator.evaluate(&long, allowance));
        assert_eq!(whole.result, Ok(Output::Bool(true)));
        assert!(whole.variables_cost > 300, "{}", whole.variables_cost);
        let steps = Cell::new(u64::MAX);
        let over = Allowance { steps: &steps, over: &|| true };
        let evaluator = Evaluator::new(&input, None, &variables);
        assert_eq!(evaluator.evaluate(&long, &over).result, Err(Failure::Deadline));
    }
    let allowed = Expression::compile("variables.allowed", &environment, Expected::Bool).unwrap();
    let result = with_steps(1_000, |allowance| Evaluator::new(&input, None, &variables).evaluate(&allowed, allowance));
    let Err(Failure::Undecided(check)) = result.result else { panic!("{result:?}") };
    input.decisions.insert(*check, Ok(AccessDecision { allowed: true, ..AccessDecision::default() }));
    let result = with_steps(1_000, |allowance| Evaluator::new(&input, None, &variables).evaluate(&allowed, allowance));
    assert_eq!(result.result, Ok(Output::Bool(true)));
}

#[test]
fn expression_uses_what_its_variables_use() {
    let mut environment = Environment::policy(true);
    let _ = declare(
        &mut environment,
        &[
            ("o", "oldObject.x"),
            ("a", "authorizer.path('/x').check('get').allowed()"),
            ("n", "namespaceObject.metadata.name"),
            ("p", "params.x"),
            ("all", "variables.o == variables.p && variables.a && variables.n == ''"),
        ],
    );
    let uses = |text: &str| {
        let expression = Expression::compile(text, &environment, Expected::Bool).unwrap();
        [
            expression.reads_objects(),
            expression.uses_authorizer(),
            expression.uses_namespace(),
            expression.uses_params(),
        ]
    };
    assert_eq!(uses("request.name == ''"), [false; 4]);
    assert_eq!(uses("variables.o == 1"), [true, false, false, false]);
    assert_eq!(uses("has(variables.a)"), [false, true, false, false]);
    assert_eq!(uses("variables.?n.orValue('') == ''"), [false, false, true, false]);
    assert_eq!(uses("variables.p == 1"), [false, false, false, true]);
    assert_eq!(uses("variables.all"), [true; 4]);
}

#[test]
fn invalid_variable_names_are_rejected() {
    let mut environment = Environment::policy(false);
    let one = Expression::compile("1", &environment, Expected::Any).unwrap();
    for (name, why) in [
        ("", "name is not a valid CEL identifier"),
        ("1a", "name is not a valid CEL identifier"),
        ("a-b", "name is not a valid CEL identifier"),
        ("ä", "name is not a valid CEL identifier"),
        ("namespace", "name is a reserved word"),
        ("while", "name is a reserved word"),
        ("a__dash__b", "the name \"a__dash__b\" contains `__word__`"),
        ("a___dash__b", "the name \"a___dash__b\" contains `__word__`"),
    ] {
        let refused = environment.declare(name, &one).unwrap_err();
        assert!(refused.starts_with(why), "{name}: {refused}");
    }
    for name in ["a", "_a", "a_b", "__a", "a__b_c__", "object"] {
        environment.declare(name, &one).unwrap();
    }
    assert_eq!(environment.declare("a", &one).unwrap_err(), "the variable \"a\" is declared twice");
}

#[test]
fn long_chain_of_variables_is_rejected() {
    let mut environment = Environment::policy(false);
    let mut declared = Variables::new();
    let mut refused = None;
    for n in 0..400_usize {
        let text = if n == 0 { "1".to_owned() } else { format!("variables.v{} + 1", n - 1) };
        match Expression::compile(&text, &environment, Expected::Any) {
            Ok(expression) => {
                environment.declare(&format!("v{n}"), &expression).unwrap();
                declared.push((format!("v{n}").into(), expression));
            }
            Err(why) => {
                refused = Some(why);
                break;
            }
        }
    }
    assert_eq!(refused.as_deref(), Some("the expression and the variables that it uses are nested more than 300 deep"));
    assert!(declared.len() > 100, "{}", declared.len());
    let last = format!("variables.v{} > 0 || true", declared.len() - 2);
    let (shown, _) = evaluate(&last, &environment, &declared, Expected::Bool);
    assert_eq!(shown, "true");
}

#[test]
fn memory_of_variables_is_bounded_together() {
    let mut environment = Environment::policy(false);
    let names: Vec<String> = (0..12).map(|n| format!("v{n}")).collect();
    let lists: Vec<_> = names.iter().map(|name| (name.as_str(), "lists.range(100000)")).collect();
    let variables = declare(&mut environment, &lists);
    let sizes: Vec<_> = names.iter().map(|name| format!("variables.{name}.size() == 100000")).collect();
    let (shown, _) = evaluate(&sizes.join(" && "), &environment, &variables, Expected::Bool);
    assert!(shown.ends_with(LISTED), "{shown}");
    let (shown, _) = evaluate(&sizes[..10].join(" && "), &environment, &variables, Expected::Bool);
    assert_eq!(shown, "true");
}

/// Text that an expression makes and drops is not held against the next one.
#[test]
fn made_text_is_counted_for_one_expression_and_the_variables() {
    let object = format!(r#"{{"s":"{}"}}"#, "a".repeat(4 << 20));
    let input = input(&object, "null");
    let mut environment = Environment::policy(false);
    let variables = declare(&mut environment, &[("twice", "object.s + object.s")]);
    let compile = |text: &str| Expression::compile(text, &environment, Expected::Bool).unwrap();
    let (plain, kept) = (compile("(object.s + 'b').size() > 0"), compile("variables.twice.size() > 0"));
    let both = compile("(object.s + object.s + 'b').size() > 0");
    let evaluator = Evaluator::new(&input, None, &variables);
    let result = |expression| with_steps(u64::MAX, |allowance| evaluator.evaluate(expression, allowance)).result;
    for _ in 0..6 {
        assert_eq!(result(&plain), Ok(Output::Bool(true)));
    }
    assert_eq!(result(&kept), Ok(Output::Bool(true)));
    assert_eq!(result(&plain), Ok(Output::Bool(true)));
    assert_eq!(result(&both), Err(Failure::Error(MADE.to_owned())));
}

#[test]
fn mutations_of_deep_objects_end() {
    let object = format!("{{\"a\":{}1{}}}", "[".repeat(9_000), "]".repeat(9_000));
    let input = input(&object, "null");
    let environment = Environment::policy(false).with_patch_types();
    let variables = Variables::new();
    for (text, expected) in [
        ("[JSONPatch{op: 'add', path: '/a', value: object.a}]", Expected::JsonPatch),
        ("Object{a: object.a}", Expected::ObjectPatch),
    ] {
        let expression = Expression::compile(text, &environment, expected).unwrap();
        let evaluator = Evaluator::new(&input, None, &variables);
        let result = with_steps(u64::MAX, |allowance| evaluator.evaluate(&expression, allowance)).result;
        let Err(Failure::Conversion(why)) = result else { panic!("{result:?}") };
        assert!(why.ends_with("the value is nested too deep"), "{why}");
    }
}

#[test]
fn budget_of_conditions_counts_their_variables() {
    let mut environment = Environment::policy(false);
    let check = "authorizer.path('/x').check('get').allowed() && authorizer.path('/x').check('list').allowed()";
    let variables = declare(&mut environment, &[("a", check), ("b", check), ("c", check), ("d", check)]);
    let mut input = policy_input();
    let condition = |text: &str| Condition::compile_in(text, text, &environment).unwrap();
    let conditions = [condition("variables.a && variables.b && variables.c"), condition("variables.d")];
    let decision = loop {
        let evaluator = Evaluator::new(&input, None, &variables);
        match with_steps(u64::MAX, |allowance| evaluator.decide(&conditions, allowance)) {
            ConditionsDecision::Undecided(check) => {
                input.decisions.insert(*check, Ok(AccessDecision { allowed: true, ..AccessDecision::default() }));
            }
            other => break format!("{other:?}"),
        }
    };
    assert_eq!(decision, format!("{:?}", ConditionsDecision::Failed(crate::OUT_OF_BUDGET.to_owned())));
}

#[test]
fn explanation_names_the_parts_that_decided() {
    let mut environment = Environment::policy(true);
    let variables = declare(&mut environment, &[("a", "object.spec.replicas"), ("bad", "object.nope")]);
    let (input, params) = (policy_input(), document(PARAMS));
    let evaluator = Evaluator::new(&input, params.as_ref(), &variables);
    let explain = |text: &str| {
        let expression = Expression::compile(text, &environment, Expected::Bool).unwrap();
        let parts = with_steps(u64::MAX, |allowance| expression.explain(&environment, &evaluator, allowance));
        parts.into_iter().map(|(part, value)| format!("{part} = {value}")).collect::<Vec<_>>()
    };
    assert!(explain("variables.a == 3 && true").is_empty());
    assert_eq!(
        explain("request.name == 'web' && (variables.a > 5 || object.metadata.name.startsWith('x'))"),
        ["variables.a > 5 = false", "variables.a = 3", "object.metadata.name.startsWith('x') = false"]
    );
    assert_eq!(explain("has(object.nope) && object.nope.x == 1"), ["has(object.nope) = false"]);
    assert_eq!(
        explain("!(object.metadata.name in ['web', 'db'])"),
        ["object.metadata.name in ['web', 'db'] = true", "object.metadata.name = 'web'"]
    );
    assert_eq!(
        explain("has(object.spec) ? object.spec.replicas <= params.max - 1 : false"),
        [
            "has(object.spec) = true",
            "object.spec.replicas <= params.max - 1 = false",
            "object.spec.replicas = 3",
            "params.max - 1 = 2",
        ]
    );
    assert_eq!(explain("object.spec.list.all(i, i != 1) && true"), ["object.spec.list.all(i, i != 1) = false"]);
    assert_eq!(
        explain("variables.bad == 1 || false"),
        [
            "variables.bad == 1 = error: composited variable \"bad\" fails to evaluate: no such key: nope",
            "variables.bad = error: composited variable \"bad\" fails to evaluate: no such key: nope",
        ]
    );
    // Signs in strings, comments and parentheses are none of the expression.
    assert_eq!(
        explain("object.metadata.name == 'a || b' // && true\n"),
        ["object.metadata.name == 'a || b' // && true = false", "object.metadata.name = 'web'"]
    );
    assert_eq!(
        explain(r"(object.metadata.name == r')\' + '&&') && (true)"),
        [r"object.metadata.name == r')\' + '&&' = false", "object.metadata.name = 'web'", r"r')\' + '&&' = ')\&&'",]
    );
    assert_eq!(
        explain("object.?spec.?nope.orValue(1) == 2"),
        ["object.?spec.?nope.orValue(1) == 2 = false", "object.?spec.?nope.orValue(1) = 1"]
    );
    assert_eq!(
        explain("object.metadata == object.spec"),
        [
            "object.metadata == object.spec = false",
            "object.metadata = {'name': 'web', 'labels': {'a': 'b'}}",
            "object.spec = {'replicas': 3, 'half': 0.5, 'list': [1, {'x': null}]}",
        ]
    );
}

#[test]
fn explanation_is_cut() {
    let environment = Environment::policy(false);
    let object = format!(r#"{{"s":"{}","l":[{}1]}}"#, "é".repeat(1_000), "1,".repeat(1_000));
    let (input, variables) = (input(&object, "null"), Variables::new());
    let evaluator = Evaluator::new(&input, None, &variables);
    let text = format!("object.s == '{}' && object.l == [1]", "x".repeat(1_000));
    let expression = Expression::compile(&text, &environment, Expected::Bool).unwrap();
    let parts = with_steps(u64::MAX, |allowance| expression.explain(&environment, &evaluator, allowance));
    assert_eq!(parts.len(), 4, "{parts:?}");
    for (part, value) in &parts {
        assert!(part.chars().count() <= 201 && value.chars().count() <= 201, "{part}: {value}");
    }
    assert!(parts[0].0.ends_with('…') && parts[1].1.ends_with('…') && parts[3].1.ends_with('…'), "{parts:?}");
    let hostile = [
        format!("{}true", "!".repeat(60)),
        format!("{}object.x == 1{}", "(".repeat(50), ")".repeat(50)),
        format!("{}false", "true ? ".repeat(20) + "false" + &" : false".repeat(20) + " && "),
    ];
    for text in hostile {
        if let Ok(expression) = Expression::compile(&text, &environment, Expected::Bool) {
            let _ = with_steps(100_000, |allowance| expression.explain(&environment, &evaluator, allowance));
        }
    }
}
