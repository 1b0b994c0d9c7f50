//! Bounds: whatever an expression makes of whatever object, it ends in time, and holds no more than it may.

use crate::{
    evaluate,
    meter::{Memory, Meter},
    tests::*,
    value::Value,
};

/// An object with a long text `s` and a long list `l`.
fn large(text: usize, items: usize) -> String {
    format!(r#"{{"s":"{}","l":[{}1]}}"#, "a".repeat(text), "1,".repeat(items - 1))
}

#[test]
fn every_made_text_and_list_is_counted() {
    let object = large(1_000, 1_000);
    let input = input(&object, "null");
    for (expression, made, listed) in [
        ("object.s.findAll('').size() > 0", 0, 1_001),
        ("[object.l, object.l].flatten().size() > 0", 0, 2_000),
        ("object.s.split('').size() > 0", 0, 1_000),
        ("object.l.reverse().size() > 0", 0, 1_000),
        ("object.l.slice(10, 910).size() > 0", 0, 900),
        ("lists.range(600).sort().size() > 0", 0, 1_200),
        ("lists.range(600).distinct().size() > 0", 0, 1_200),
        ("(object.l + object.l).size() > 0", 0, 2_000),
        ("{object.s: 1}.size() > 0", 1_000, 0),
        ("[object.s].transformMap(i, s, s).size() > 0", 0, 0),
        ("{'a': 1}.transformMapEntry(k, v, {object.s: v}).size() > 0", 2_000, 0),
        ("'%s'.format([object.s]).size() > 0", 1_000, 0),
        ("'%x'.format([object.s]).size() > 0", 2_000, 0),
        ("'%s'.format([object.l]).size() > 0", 3_000, 0),
        ("strings.quote(object.s).size() > 0", 1_000, 0),
        ("string(bytes(object.s)).size() > 0", 2_000, 0),
    ] {
        let program = compile(expression).unwrap();
        let (steps, memory) = (Cell::new(u64::MAX), Memory::default());
        let allowance = Allowance { steps: &steps, over: &|| false };
        let meter = Meter::new(&allowance, &memory, Default::default());
        let value = evaluate::value(&program, &input, None, &meter);
        assert!(matches!(value, Ok(Value::Bool(true))), "{expression}: {value:?}");
        drop(value);
        assert_eq!(meter.held(), 0, "{expression}: all is given back");
        let counted = meter.counted();
        assert!(counted.0 >= made && counted.1 >= listed, "{expression}: {counted:?}");
    }
}

/// Items that are held, and not those that were made: most lists live for one round of a loop.
#[test]
fn held_lists_and_maps_are_bounded() {
    let object = large(1, 1_000);
    let with = |unit: &str, many: usize| vec![unit; many].join(",");
    let entries = |value: fn(usize) -> String| {
        let entries: Vec<_> = (0..300).map(|n| format!("'k{n}':{}", value(n))).collect();
        entries.join(",")
    };
    let (literals, made) = (entries(|n| n.to_string()), entries(|_| "i".to_owned()));
    for expression in [
        "object.l.map(i, object.l + object.l).size() > 0".to_owned(),
        format!("object.l.map(i, [int(i),{}]).size() > 0", with("1", 1_500)),
        format!("object.l.map(i, {{{literals}}}).size() > 0"),
        format!("object.l.map(i, {{{made}}}).size() > 0"),
    ] {
        let shown = &expression[..expression.len().min(60)];
        let why = decided(&expression, &object).expect_err(shown);
        assert!(why.ends_with(LISTED), "{shown}: {}", &why[why.len() - 90..]);
    }
    for expression in [
        "object.l.all(i, (object.l + object.l).size() == 2000)".to_owned(),
        format!("object.l.all(i, [int(i),{}].size() > 0)", with("1", 1_500)),
        format!("object.l.all(i, {{{literals}}}.size() == 300)"),
    ] {
        assert_eq!(decided(&expression, &object), Ok(true), "{}", &expression[..40]);
    }
}

#[test]
fn deadline_is_checked_outside_of_loops() {
    let object = large(2_000_000, 1);
    let input = input(&object, "null");
    for expression in
        ["object.s.findAll('a').size() > 0", "object.s.matches('a+b')", "'%s'.format([object.s]).size() > 0"]
    {
        let conditions = [Condition::compile("c", expression).unwrap()];
        let steps = Cell::new(u64::MAX);
        let over = Allowance { steps: &steps, over: &|| true };
        match decide(&conditions, &input, &over) {
            ConditionsDecision::Failed(why) => assert!(why.ends_with("operation interrupted"), "{expression}: {why}"),
            other => panic!("{expression}: {other:?}"),
        }
    }
}

#[test]
fn expensive_patterns_are_rejected() {
    let object = large(400_000, 1);
    let why = decided("object.s.matches('((a?){30}){30}b')", &object).unwrap_err();
    assert!(why.ends_with("the pattern has too many repetitions for a text of this length"), "{why}");
    assert_eq!(decided("object.s.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", &object), Ok(false));
    assert_eq!(decided("'a'.matches('((a?){30}){30}b')", &object), Ok(false));
}

#[test]
fn steps_are_counted_whatever_the_cost() {
    let rounds = |expression: &str| steps_of(&format!("lists.range(1000).all(i, {expression})"), &large(10_000, 1));
    let plain = rounds("i >= 0");
    for (expression, least) in [
        // Least steps: bytes that are read, divided by the bytes of one step.
        ("double(object.s) == 1.0 || i >= 0", 300),
        ("bool(object.s) || i >= 0", 300),
        ("duration(object.s) == duration('1s') || i >= 0", 300),
        ("timestamp(object.s) == timestamp('2024-01-02T03:04:05Z') || i >= 0", 300),
        ("!isSemver(object.s)", 300),
        ("!isQuantity(object.s)", 300),
        ("!isIP(object.s)", 300),
        ("!isCIDR(object.s)", 300),
        ("object.s.findAll('a', 1).size() == 1", 300),
        (r"!'x'.matches('\\pL{9}' + string(i))", 5_000),
        ("i in {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9} || i >= 0", 72),
        ("!(object.s in object)", 300),
        ("object.s.charAt(9999) == 'a'", 300),
        ("object.s.size() == 10000", 300),
        ("object.s == object.s", 300),
    ] {
        let more = rounds(expression) - plain;
        assert!(more >= least * 1000, "{expression}: {more} steps");
    }
}

#[test]
fn types_do_not_grow_exponentially() {
    let mut expression = "optional.of({1: 1})".to_owned();
    for n in 0..40 {
        expression += &format!(".optMap(m{n}, {{m{n}: m{n}}})");
    }
    assert!(compile(&format!("{expression}.hasValue()")).is_err());
    let mut nested = "m39".to_owned();
    for n in (0..40).rev() {
        let of = if n == 0 { "1".to_owned() } else { format!("[m{}, m{}]", n - 1, n - 1) };
        nested = format!("optional.of({of}).optMap(m{n}, {nested}).value()");
    }
    let _ = compile(&format!("{nested} == 1"));
}
