//! Trees and messages of parsed expressions, beside those of an apiserver: `tests/cel/trees.json`.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::{
    parse::parse,
    tree::{Comprehension, Expr, Expression},
    value::Literal,
};

#[derive(Deserialize)]
struct Parsed {
    from: String,
    expression: String,
    tree: Option<String>,
    refused: Option<String>,
}

/// Expressions that are parsed differently than upstream does, and the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("m.existsOne(v, f)", "a macro here, as in later versions of upstream"),
    ("[].existsOne(__result__, __result__)", "a macro here, as in later versions of upstream"),
    ("x{?.", "upstream first has a fault that follows from the one that is reported here"),
    ("", "upstream says column 0"),
];

#[test]
fn expressions_have_the_trees_of_kube_apiserver() {
    let cases: Vec<Parsed> = serde_json::from_str(include_str!("../../../../tests/cel/trees.json")).unwrap();
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for case in &cases {
        let here = match parse(&case.expression) {
            Ok(tree) => {
                let mut shown = String::new();
                show(&tree, &mut shown);
                Ok(shown)
            }
            Err(why) => Err(why.strip_prefix("ERROR: <input>:").unwrap_or(&why).to_owned()),
        };
        let there = match (&case.tree, &case.refused) {
            (Some(tree), _) => Ok(tree.clone()),
            (_, why) => Err(why
                .as_deref()
                .unwrap_or_default()
                .trim_start_matches("-1:0: ")
                .replace('\n', "\\n")
                .replace('\t', "\\t")),
        };
        let known = DIFFERENT.iter().find(|(expression, _)| *expression == case.expression);
        used.extend(known.map(|(expression, _)| *expression));
        if (here == there) == known.is_some() {
            wrong.push(format!("{}: {}\n  here  {here:?}\n  there {there:?}", case.from, case.expression));
        }
    }
    println!("{}/{} as upstream", cases.len() - DIFFERENT.len(), cases.len());
    let unused = DIFFERENT.iter().filter(|(expression, _)| !used.contains(expression));
    wrong.extend(unused.map(|(expression, _)| format!("{expression}: no case")));
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// The deepest nests and the longest chains that are allowed, ones that are not, and those of the largest size.
#[test]
fn hostile_expressions_are_parsed_on_a_small_stack() {
    let nest = |open: &str, close: &str, many: usize| format!("{}a{}", open.repeat(many), close.repeat(many));
    let repeated = [
        ("(", ")"),
        ("[", "]"),
        ("{1:", "}"),
        ("T{f:", "}"),
        ("f(", ")"),
        ("a.f(", ")"),
        ("a[", "]"),
        ("!(", ")"),
        ("-(", ")"),
        ("1+(", ")"),
        ("a?b:", ""),
        ("a?(", "):c"),
        ("[1].all(x,", ")"),
        ("[1].map(x,true,", ")"),
        ("", "+1"),
        ("", "*1"),
        ("", "<1"),
        ("", ".a"),
        ("", ".?a"),
        ("", "[0]"),
        ("", ".f()"),
        ("", ".optMap(x,x)"),
        ("", "||a"),
        ("", "||a&&a"),
        ("!", ""),
        ("-", ""),
        ("a,", ""),
        ("'", ""),
        ("'''", ""),
        ("`", ""),
        ("r'''\\", ""),
        ("\\", ""),
        ("\u{e9}", ""),
        ("a.", ""),
        ("[a,", "]"),
    ];
    let parsing = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let mut deepest = 0;
        for (open, close) in repeated {
            for many in [1, 70, 74, 75, 140, 150, 249, 250, 299, 300] {
                let text = nest(open, close, many);
                deepest = deepest.max(if parse(&text).is_ok() { many } else { 0 });
                let _ = crate::Condition::compile("c", &text);
            }
            let _ = crate::Condition::compile("c", &nest(open, close, 99_000 / (open.len() + close.len())));
        }
        deepest
    });
    assert!(parsing.unwrap().join().unwrap() >= 249);
    let why = parse(&format!("1 '{}'", "a".repeat(90_000))).unwrap_err();
    assert!(why.len() < 300, "{why}");
    let why = parse(&"a".repeat(100_001)).unwrap_err();
    assert_eq!(why, "expression code point size exceeds limit: size: 100001, limit 100000");
}

/// Writes a tree as cel-go's `debug` does, without its ends of lines.
fn show(tree: &Expression, out: &mut String) {
    match &tree.expr {
        Expr::Literal(literal) => show_literal(literal, out),
        Expr::Ident(name) => out.push_str(name),
        Expr::Select(select) => {
            show(&select.operand, out);
            out.push_str(&format!(".{}{}", select.field, if select.test { "~test-only~" } else { "" }));
        }
        Expr::Call(call) => {
            if let Some(target) = &call.target {
                show(target, out);
                out.push('.');
            }
            out.push_str(&call.name);
            between(out, "()", &call.args, |arg, out| show(arg, out));
        }
        Expr::List(items) => between(out, "[]", items, |(item, _), out| show(item, out)),
        Expr::Map(entries) => between(out, "{}", entries, |entry, out| {
            out.push_str(if entry.optional { "?" } else { "" });
            show(&entry.key, out);
            out.push(':');
            show(&entry.value, out);
        }),
        Expr::Message(message) => {
            out.push_str(&message.name);
            between(out, "{}", &message.fields, |field, out| {
                out.push_str(&format!("{}{}:", if field.optional { "?" } else { "" }, field.name));
                show(&field.value, out);
            });
        }
        Expr::Comprehension(fold) => {
            let Comprehension { range, first, second, accumulator, start, go_on, step, result } = &**fold;
            out.push_str(&format!("__comprehension__(// Variable{first},"));
            out.push_str(&second.as_ref().map(|second| format!("{second},")).unwrap_or_default());
            out.push_str("// Target");
            show(range, out);
            out.push_str(&format!(",// Accumulator{accumulator},// Init"));
            show(start, out);
            for (name, part) in [("LoopCondition", go_on), ("LoopStep", step), ("Result", result)] {
                out.push_str(&format!(",// {name}"));
                show(part, out);
            }
            out.push(')');
        }
    }
}

fn between<T>(out: &mut String, brackets: &str, items: &[T], mut show: impl FnMut(&T, &mut String)) {
    out.push_str(&brackets[..1]);
    for (at, item) in items.iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        show(item, out);
    }
    out.push_str(&brackets[1..]);
}

fn show_literal(literal: &Literal, out: &mut String) {
    match literal {
        Literal::Null => out.push_str("null"),
        Literal::Bool(yes) => write!(out, "{yes}").unwrap(),
        Literal::Int(number) => write!(out, "{number}").unwrap(),
        Literal::Uint(number) => write!(out, "{number}u").unwrap(),
        Literal::Double(number) if *number != 0.0 && !(1e-4..1e6).contains(&number.abs()) => {
            let text = format!("{number:e}");
            let (digits, exponent) = text.split_once('e').unwrap();
            let exponent: i32 = exponent.parse().unwrap();
            write!(out, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()).unwrap();
        }
        Literal::Double(number) => write!(out, "{number}").unwrap(),
        Literal::String(text) => quote(text.as_bytes(), out),
        Literal::Bytes(bytes) => {
            out.push('b');
            quote(bytes, out);
        }
        other => panic!("{other:?}"),
    }
}

/// Writes text as Go's `strconv.Quote`.
fn quote(bytes: &[u8], out: &mut String) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\u{7}' => out.push_str("\\a"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{b}' => out.push_str("\\v"),
                '\\' | '"' => out.extend(['\\', char]),
                '\0'..' ' | '\u{7f}' => write!(out, "\\x{:02x}", char as u32).unwrap(),
                '\u{300}'..='\u{36f}' => out.push(char),
                // Not printable.
                '\u{80}'..='\u{ffff}' if char.escape_debug().count() > 1 => {
                    write!(out, "\\u{:04x}", char as u32).unwrap()
                }
                '\u{10000}'.. if char.escape_debug().count() > 1 => write!(out, "\\U{:08x}", char as u32).unwrap(),
                char => out.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| write!(out, "\\x{byte:02x}").unwrap());
    }
    out.push('"');
}
