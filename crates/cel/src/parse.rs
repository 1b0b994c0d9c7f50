//! Parses an expression into the tree of the crate `cel`, within bounds on its size and depth.
//!
//! Macros that the parser does not know (comprehensions of two variables, `optMap`, `optFlatMap`, `sortBy`) are
//! expanded to folds as in cel-go.

use cel::{
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, operators},
    parser::{Expression, PrattParser},
};

/// Maximum length of an expression, in bytes.
const MAX_EXPRESSION_BYTES: usize = 16 << 10;

/// Maximum number of tokens: names, numbers, signs.
const MAX_TOKENS: usize = 4_000;

/// Maximum number of question marks: each one nests the parser one level deeper.
const MAX_QUESTION_MARKS: usize = 200;

/// Maximum depth of the tree.
pub(super) const MAX_DEPTH: usize = 150;

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Expression, String> {
    if text.len() > MAX_EXPRESSION_BYTES {
        return Err(format!("the expression is longer than {MAX_EXPRESSION_BYTES} bytes"));
    }
    let (tokens, questions) = count_tokens(text);
    if tokens > MAX_TOKENS || questions > MAX_QUESTION_MARKS {
        return Err(format!(
            "the expression has more than {MAX_TOKENS} words and signs, or more than {MAX_QUESTION_MARKS} ?"
        ));
    }
    let parser = PrattParser::new().max_recursion_depth(64).error_recovery_limit(4).enable_optional_syntax(true);
    let tree = parser.parse(text).map_err(|errors| match errors.errors.first() {
        Some(error) if error.pos.0 > 0 => format!("{} (line {}, column {})", error.msg, error.pos.0, error.pos.1),
        Some(error) => error.msg.clone(),
        None => "it cannot be parsed".to_owned(),
    })?;
    if is_deep(&tree) {
        return Err(format!("the expression is nested more than {MAX_DEPTH} deep"));
    }
    Ok(tree)
}

/// Returns the approximate number of tokens, and the number of question marks. Text in quotes counts, too, so that both
/// are rather too large.
fn count_tokens(text: &str) -> (usize, usize) {
    let (mut tokens, mut questions, mut in_word) = (0, 0, false);
    for byte in text.bytes() {
        let word = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
        if !(byte.is_ascii_whitespace() || word && in_word) {
            tokens += 1;
        }
        in_word = word;
        questions += usize::from(byte == b'?');
    }
    (tokens, questions)
}

/// Returns true if the tree is deeper than [`MAX_DEPTH`]. Walks it by level, without recursion.
fn is_deep(tree: &Expression) -> bool {
    let mut level = vec![tree];
    for _ in 0..MAX_DEPTH {
        level = level.into_iter().flat_map(children).collect();
        if level.is_empty() {
            return false;
        }
    }
    true
}

fn children(tree: &Expression) -> Vec<&Expression> {
    match &tree.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(fold) => {
            vec![&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Struct(message) => message.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn parts(entry: &EntryExpr) -> Vec<&Expression> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

pub(super) fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}'")
}

/// Returns a path such as `a.b.c`; `None` for any other tree.
pub(super) fn qualified(tree: &Expression) -> Option<String> {
    match &tree.expr {
        Expr::Ident(name) => Some(name.strip_prefix('.').unwrap_or(name).to_owned()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", qualified(&select.operand)?, select.field)),
        _ => None,
    }
}

/// Name of the accumulator of a fold, as in the parser.
pub(super) const ACCUMULATOR: &str = "@result";

/// Expands a call of a macro with these arguments; `None` if it is no macro.
pub(super) fn expand(name: &str, target: &Expression, args: &[Expression]) -> Option<Result<Expression, String>> {
    Some(match (name, args) {
        ("all", [a, b, holds]) => two(a, b).map(|names| {
            let step = call(operators::LOGICAL_AND, [ident(ACCUMULATOR), holds.clone()]);
            let go_on = call(operators::NOT_STRICTLY_FALSE, [ident(ACCUMULATOR)]);
            fold(target, names, literal(true), go_on, step, ident(ACCUMULATOR))
        }),
        ("exists", [a, b, holds]) => two(a, b).map(|names| {
            let step = call(operators::LOGICAL_OR, [ident(ACCUMULATOR), holds.clone()]);
            let not_yet = call(operators::LOGICAL_NOT, [ident(ACCUMULATOR)]);
            let go_on = call(operators::NOT_STRICTLY_FALSE, [not_yet]);
            fold(target, names, literal(false), go_on, step, ident(ACCUMULATOR))
        }),
        ("existsOne" | "exists_one", [a, b, holds]) => two(a, b).map(|names| {
            let more = call(operators::ADD, [ident(ACCUMULATOR), number(1)]);
            let step = call(operators::CONDITIONAL, [holds.clone(), more, ident(ACCUMULATOR)]);
            let result = call(operators::EQUALS, [ident(ACCUMULATOR), number(1)]);
            fold(target, names, number(0), literal(true), step, result)
        }),
        ("transformList", [a, b, rest @ ..]) if matches!(rest.len(), 1 | 2) => two(a, b).map(|names| {
            let one = of(Expr::List(ListExpr::new(rest.last().cloned().into_iter().collect())));
            let more = call(operators::ADD, [ident(ACCUMULATOR), one]);
            fold(
                target,
                names,
                of(Expr::List(ListExpr::default())),
                literal(true),
                with_filter(rest, more),
                ident(ACCUMULATOR),
            )
        }),
        ("transformMap", [a, b, rest @ ..]) if matches!(rest.len(), 1 | 2) => two(a, b).map(|names| {
            let value = rest.last().cloned().unwrap_or_default();
            let more = call("cel.@mapInsert", [ident(ACCUMULATOR), ident(&names.0), value]);
            fold(
                target,
                names,
                of(Expr::Map(MapExpr::default())),
                literal(true),
                with_filter(rest, more),
                ident(ACCUMULATOR),
            )
        }),
        ("transformMapEntry", [a, b, rest @ ..]) if matches!(rest.len(), 1 | 2) => two(a, b).map(|names| {
            let more = call("cel.@mapInsert", [ident(ACCUMULATOR), rest.last().cloned().unwrap_or_default()]);
            fold(
                target,
                names,
                of(Expr::Map(MapExpr::default())),
                literal(true),
                with_filter(rest, more),
                ident(ACCUMULATOR),
            )
        }),
        ("optMap", [name, value]) => variable(name).map(|name| {
            let mapped =
                member(ident("optional"), "of", [bind(&name, member(target.clone(), "value", []), value.clone())]);
            when_there(target, mapped)
        }),
        ("optFlatMap", [name, value]) => variable(name)
            .map(|name| when_there(target, bind(&name, member(target.clone(), "value", []), value.clone()))),
        ("sortBy", [name, key]) => variable(name).map(|name| {
            const INPUT: &str = "@__sortBy_input__";
            let one = of(Expr::List(ListExpr::new(vec![key.clone()])));
            let step = call(operators::ADD, [ident(ACCUMULATOR), one]);
            let keys = fold(
                &ident(INPUT),
                (name, None),
                of(Expr::List(ListExpr::default())),
                literal(true),
                step,
                ident(ACCUMULATOR),
            );
            bind(INPUT, target.clone(), member(ident(INPUT), "@sortByAssociatedKeys", [keys]))
        }),
        _ => return None,
    })
}

type Names = (String, Option<String>);

fn of(expr: Expr) -> Expression {
    Expression { id: 0, expr }
}

fn ident(name: &str) -> Expression {
    of(Expr::Ident(name.to_owned()))
}

fn literal(yes: bool) -> Expression {
    of(Expr::Literal(LiteralValue::Boolean(yes.into())))
}

fn number(number: i64) -> Expression {
    of(Expr::Literal(LiteralValue::Int(number.into())))
}

fn call(name: &str, args: impl IntoIterator<Item = Expression>) -> Expression {
    let args = args.into_iter().collect();
    of(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

fn member(target: Expression, name: &str, args: impl IntoIterator<Item = Expression>) -> Expression {
    let (target, args) = (Some(Box::new(target)), args.into_iter().collect());
    of(Expr::Call(CallExpr { func_name: name.to_owned(), target, args }))
}

fn variable(name: &Expression) -> Result<String, String> {
    match &name.expr {
        Expr::Ident(name) if name != ACCUMULATOR => Ok(name.trim_start_matches('.').to_owned()),
        _ => Err("argument must be a simple name".to_owned()),
    }
}

fn two(a: &Expression, b: &Expression) -> Result<Names, String> {
    let (a, b) = (variable(a)?, variable(b)?);
    if a == b {
        return Err(format!("duplicate variable name: {a}"));
    }
    Ok((a, Some(b)))
}

fn fold(
    range: &Expression,
    (iter_var, iter_var2): Names,
    accu_init: Expression,
    loop_cond: Expression,
    loop_step: Expression,
    result: Expression,
) -> Expression {
    let (iter_range, accu_var) = (range.clone(), ACCUMULATOR.to_owned());
    let fold = ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result };
    of(Expr::Comprehension(Box::new(fold)))
}

/// Returns the step of a fold with its filter, if there is one.
fn with_filter(rest: &[Expression], more: Expression) -> Expression {
    match rest {
        [filter, _] => call(operators::CONDITIONAL, [filter.clone(), more, ident(ACCUMULATOR)]),
        _ => more,
    }
}

/// Binds one more variable in an expression.
fn bind(name: &str, value: Expression, within: Expression) -> Expression {
    let fold = ComprehensionExpr {
        iter_range: of(Expr::List(ListExpr::default())),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: literal(false),
        loop_step: ident(name),
        result: within,
    };
    of(Expr::Comprehension(Box::new(fold)))
}

fn when_there(target: &Expression, then: Expression) -> Expression {
    let there = member(target.clone(), "hasValue", []);
    call(operators::CONDITIONAL, [there, then, member(ident("optional"), "none", [])])
}
