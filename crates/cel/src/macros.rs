//! Macros that the parser does not know: comprehensions of two variables, `optMap`, `optFlatMap` and `sortBy`, written
//! as the folds that cel-go makes of them.

use cel::{
    common::ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, MapExpr, operators},
    parser::Expression,
};

/// The name of what a fold gathers. As the parser has it.
pub(super) const GATHERED: &str = "@result";

/// Expansion of a call with these arguments; `None` where it is no macro.
pub(super) fn expanded(name: &str, target: &Expression, args: &[Expression]) -> Option<Result<Expression, String>> {
    Some(match (name, args) {
        ("all", [a, b, holds]) => two(a, b).map(|names| {
            let step = call(operators::LOGICAL_AND, [ident(GATHERED), holds.clone()]);
            let go_on = call(operators::NOT_STRICTLY_FALSE, [ident(GATHERED)]);
            fold(target, names, literal(true), go_on, step, ident(GATHERED))
        }),
        ("exists", [a, b, holds]) => two(a, b).map(|names| {
            let step = call(operators::LOGICAL_OR, [ident(GATHERED), holds.clone()]);
            let not_yet = call(operators::LOGICAL_NOT, [ident(GATHERED)]);
            let go_on = call(operators::NOT_STRICTLY_FALSE, [not_yet]);
            fold(target, names, literal(false), go_on, step, ident(GATHERED))
        }),
        ("existsOne" | "exists_one", [a, b, holds]) => two(a, b).map(|names| {
            let more = call(operators::ADD, [ident(GATHERED), number(1)]);
            let step = call(operators::CONDITIONAL, [holds.clone(), more, ident(GATHERED)]);
            let result = call(operators::EQUALS, [ident(GATHERED), number(1)]);
            fold(target, names, number(0), literal(true), step, result)
        }),
        ("transformList", [a, b, rest @ ..]) if matches!(rest.len(), 1 | 2) => two(a, b).map(|names| {
            let one = of(Expr::List(ListExpr::new(rest.last().cloned().into_iter().collect())));
            let more = call(operators::ADD, [ident(GATHERED), one]);
            fold(
                target,
                names,
                of(Expr::List(ListExpr::default())),
                literal(true),
                filtered(rest, more),
                ident(GATHERED),
            )
        }),
        ("transformMap", [a, b, rest @ ..]) if matches!(rest.len(), 1 | 2) => two(a, b).map(|names| {
            let value = rest.last().cloned().unwrap_or_default();
            let more = call("cel.@mapInsert", [ident(GATHERED), ident(&names.0), value]);
            fold(target, names, of(Expr::Map(MapExpr::default())), literal(true), filtered(rest, more), ident(GATHERED))
        }),
        ("transformMapEntry", [a, b, rest @ ..]) if matches!(rest.len(), 1 | 2) => two(a, b).map(|names| {
            let more = call("cel.@mapInsert", [ident(GATHERED), rest.last().cloned().unwrap_or_default()]);
            fold(target, names, of(Expr::Map(MapExpr::default())), literal(true), filtered(rest, more), ident(GATHERED))
        }),
        ("optMap", [name, value]) => variable(name).map(|name| {
            let mapped =
                member(ident("optional"), "of", [bound(&name, member(target.clone(), "value", []), value.clone())]);
            when_there(target, mapped)
        }),
        ("optFlatMap", [name, value]) => variable(name)
            .map(|name| when_there(target, bound(&name, member(target.clone(), "value", []), value.clone()))),
        ("sortBy", [name, key]) => variable(name).map(|name| {
            const INPUT: &str = "@__sortBy_input__";
            let one = of(Expr::List(ListExpr::new(vec![key.clone()])));
            let step = call(operators::ADD, [ident(GATHERED), one]);
            let keys = fold(
                &ident(INPUT),
                (name, None),
                of(Expr::List(ListExpr::default())),
                literal(true),
                step,
                ident(GATHERED),
            );
            bound(INPUT, target.clone(), member(ident(INPUT), "@sortByAssociatedKeys", [keys]))
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
        Expr::Ident(name) if name != GATHERED => Ok(name.trim_start_matches('.').to_owned()),
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
    let (iter_range, accu_var) = (range.clone(), GATHERED.to_owned());
    let fold = ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result };
    of(Expr::Comprehension(Box::new(fold)))
}

/// Expression behind a filter, where there is one: only elements that it lets through.
fn filtered(rest: &[Expression], more: Expression) -> Expression {
    match rest {
        [filter, _] => call(operators::CONDITIONAL, [filter.clone(), more, ident(GATHERED)]),
        _ => more,
    }
}

/// The expression with one more variable.
fn bound(name: &str, value: Expression, within: Expression) -> Expression {
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
