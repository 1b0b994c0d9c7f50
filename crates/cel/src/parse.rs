//! Parse: an expression's text to the parser's tree, within bounds that keep every walk over it from running deep.

use cel::{
    common::ast::{EntryExpr, Expr},
    parser::{Expression, PrattParser},
};

/// The longest expression, in bytes.
const LONGEST: usize = 16 << 10;

/// The most that may stand in one: names, numbers, signs.
const MOST_TOKENS: usize = 4_000;

/// The most question marks: the parser goes one deeper for every one of them.
const MOST_QUESTIONS: usize = 200;

/// Greatest depth of the tree.
pub(super) const DEEPEST: usize = 150;

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Expression, String> {
    if text.len() > LONGEST {
        return Err(format!("the expression is longer than {LONGEST} bytes"));
    }
    let (tokens, questions) = counted(text);
    if tokens > MOST_TOKENS || questions > MOST_QUESTIONS {
        return Err(format!(
            "the expression has more than {MOST_TOKENS} words and signs, or more than {MOST_QUESTIONS} ?"
        ));
    }
    let parser = PrattParser::new().max_recursion_depth(64).error_recovery_limit(4).enable_optional_syntax(true);
    let tree = parser.parse(text).map_err(|errors| match errors.errors.first() {
        Some(error) if error.pos.0 > 0 => format!("{} (line {}, column {})", error.msg, error.pos.0, error.pos.1),
        Some(error) => error.msg.clone(),
        None => "it cannot be parsed".to_owned(),
    })?;
    if is_deep(&tree) {
        return Err(format!("the expression is nested more than {DEEPEST} deep"));
    }
    Ok(tree)
}

/// About how many tokens there are, and how many question marks; what stands in quotes counts too, which errs on the
/// side of more.
fn counted(text: &str) -> (usize, usize) {
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

/// Measured level by level, not by recursion.
fn is_deep(tree: &Expression) -> bool {
    let mut level = vec![tree];
    for _ in 0..DEEPEST {
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
