//! Explains why an expression is not true: the parts that decided, each as it was written, with its value.
//!
//! An explanation shows contents of the request and its objects. It is for tests of policies, and not for logs.

use std::{
    cell::OnceCell,
    fmt::{self, Write},
};

use crate::{
    access,
    environment::{Environment, Expected},
    evaluator::Evaluator,
    expression::Expression,
    meter::{Allowance, Fault, Meter},
    program::Node,
    value::Value,
};

/// Maximum number of characters of a part and of a value.
const MAX_CHARS: usize = 200;

/// Maximum depth of a shown value.
const MAX_DEPTH: usize = 20;

impl Expression {
    /// Returns the parts of a condition that made it false or an error, each with its value or error. Operands of
    /// comparisons follow their comparison. Empty if the condition is true.
    ///
    /// `environment` is the one in which the expression was compiled. The parts are evaluated anew, and so are their
    /// variables.
    ///
    /// The values may hold contents of the objects. Do not call this for objects whose contents are secret.
    pub fn explain(
        &self,
        environment: &Environment,
        evaluator: &Evaluator<'_>,
        allowance: &Allowance<'_>,
    ) -> Vec<(String, String)> {
        let root = Subexpression::new(self.text(), environment);
        let mut explanation = Vec::new();
        let fresh = evaluator.fresh();
        root.explain(&fresh, allowance, true, &mut explanation);
        explanation
    }
}

/// An expression, or an operand in it.
enum Subexpression<'t> {
    /// Operands of `&&`.
    All(Vec<Subexpression<'t>>),
    /// Operands of `||`.
    Any(Vec<Subexpression<'t>>),
    Not(Box<Subexpression<'t>>),
    Ternary(Box<[Subexpression<'t>; 3]>),
    Comparison(Leaf<'t>, [Leaf<'t>; 2]),
    Leaf(Leaf<'t>),
}

/// An operand that is shown as a whole.
struct Leaf<'t> {
    text: &'t str,
    /// `None` if the operand does not compile alone, such as one that uses the variable of a macro.
    expression: Option<Expression>,
    result: OnceCell<LeafResult>,
}

/// The value of an operand.
#[derive(Clone)]
struct LeafResult {
    /// `None` if the value is not a bool, or if the evaluation failed.
    outcome: Option<bool>,
    shown: String,
}

impl<'t> Subexpression<'t> {
    fn new(text: &'t str, environment: &Environment) -> Self {
        let text = without_parentheses(text);
        let signs = signs(text);
        let part = |range: &'t str| Self::new(range, environment);
        if let Some((condition, yes, no)) = ternary(text, &signs) {
            return Self::Ternary(Box::new([part(condition), part(yes), part(no)]));
        }
        for sign in [Sign::Or, Sign::And] {
            let operands = split(text, &signs, sign);
            if operands.len() > 1 {
                let parts = operands.into_iter().map(part).collect();
                return if sign == Sign::Or { Self::Any(parts) } else { Self::All(parts) };
            }
        }
        let leaf = |text| Leaf::new(text, environment);
        let relation = signs.iter().rev().find(|(_, sign)| matches!(sign, Sign::Relation(_)));
        if let Some((at, Sign::Relation(len))) = relation {
            return Self::Comparison(leaf(text), [leaf(&text[..*at]), leaf(&text[at + len..])]);
        }
        match text.strip_prefix('!') {
            Some(rest) if !signs.iter().any(|(_, sign)| *sign == Sign::Arithmetic) => Self::Not(Box::new(part(rest))),
            _ => Self::Leaf(leaf(text)),
        }
    }

    /// Returns the value of the part; `None` if it is an error.
    fn outcome<'a>(&'a self, evaluator: &Evaluator<'a>, allowance: &Allowance<'_>) -> Option<bool> {
        let outcome = |part: &'a Self| part.outcome(evaluator, allowance);
        match self {
            Self::All(parts) | Self::Any(parts) => {
                let decides = matches!(self, Self::Any(_));
                let outcomes: Vec<_> = parts.iter().map(outcome).collect();
                match outcomes.contains(&Some(decides)) {
                    true => Some(decides),
                    false if outcomes.contains(&None) => None,
                    false => Some(!decides),
                }
            }
            Self::Not(part) => outcome(part).map(|yes| !yes),
            Self::Ternary(parts) => outcome(&parts[if outcome(&parts[0])? { 1 } else { 2 }]),
            Self::Comparison(leaf, _) | Self::Leaf(leaf) => leaf.result(evaluator, allowance).outcome,
        }
    }

    /// Adds the parts that kept this one from being `wanted`.
    fn explain<'a>(
        &'a self,
        evaluator: &Evaluator<'a>,
        allowance: &Allowance<'_>,
        wanted: bool,
        explanation: &mut Vec<(String, String)>,
    ) {
        let outcome = self.outcome(evaluator, allowance);
        if outcome == Some(wanted) {
            return;
        }
        match self {
            Self::All(parts) | Self::Any(parts) => {
                // Other outcomes did not decide: `has(x.y) && x.y > 1` is false, and not an error.
                for part in parts.iter().filter(|part| part.outcome(evaluator, allowance) == outcome) {
                    part.explain(evaluator, allowance, wanted, explanation);
                }
            }
            Self::Not(part) => part.explain(evaluator, allowance, !wanted, explanation),
            Self::Ternary(parts) => {
                let condition = parts[0].outcome(evaluator, allowance);
                parts[0].explain(evaluator, allowance, !condition.unwrap_or(true), explanation);
                if let Some(yes) = condition {
                    parts[if yes { 1 } else { 2 }].explain(evaluator, allowance, wanted, explanation);
                }
            }
            Self::Comparison(whole, operands) => {
                explanation.push(whole.shown(evaluator, allowance));
                let operands = operands.iter().filter(|operand| !operand.is_literal());
                explanation.extend(operands.map(|operand| operand.shown(evaluator, allowance)));
            }
            Self::Leaf(leaf) => explanation.push(leaf.shown(evaluator, allowance)),
        }
    }
}

impl<'t> Leaf<'t> {
    fn new(text: &'t str, environment: &Environment) -> Self {
        let text = text.trim();
        let expression = Expression::compile(text, environment, Expected::Any).ok();
        Self { text, expression, result: OnceCell::new() }
    }

    fn is_literal(&self) -> bool {
        let is_literal = |expression: &Expression| matches!(expression.program.root, Node::Literal(_));
        self.expression.as_ref().is_some_and(is_literal)
    }

    fn result<'a>(&'a self, evaluator: &Evaluator<'a>, allowance: &Allowance<'_>) -> &'a LeafResult {
        self.result.get_or_init(|| match &self.expression {
            Some(expression) => evaluator.observe(expression, allowance, |value, meter| {
                let outcome = match &value {
                    Ok(Value::Bool(yes)) => Some(*yes),
                    _ => None,
                };
                LeafResult { outcome, shown: shown(value, meter) }
            }),
            None => LeafResult { outcome: None, shown: "error: cannot be evaluated alone".to_owned() },
        })
    }

    fn shown<'a>(&'a self, evaluator: &Evaluator<'a>, allowance: &Allowance<'_>) -> (String, String) {
        let mut text = Cut::default();
        let _ = text.write_str(self.text);
        (text.text, self.result(evaluator, allowance).shown.clone())
    }
}

/// A sign outside of parentheses and strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Question,
    Colon,
    Or,
    And,
    /// A comparison, by its length.
    Relation(usize),
    Arithmetic,
}

/// Returns the signs outside of parentheses and strings, with their offsets.
fn signs(text: &str) -> Vec<(usize, Sign)> {
    let (mut signs, mut depth, mut at) = (Vec::new(), 0_usize, 0);
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let (sign, len) = match byte {
            b'\'' | b'"' => (None, string_len(rest, false)),
            b'(' | b'[' | b'{' => {
                depth += 1;
                (None, 1)
            }
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                (None, 1)
            }
            b'/' if rest.starts_with(b"//") => (None, rest.iter().take_while(|byte| **byte != b'\n').count()),
            b'.' if rest.starts_with(b".?") => (None, 2),
            b'?' => (Some(Sign::Question), 1),
            b':' => (Some(Sign::Colon), 1),
            b'|' if rest.starts_with(b"||") => (Some(Sign::Or), 2),
            b'&' if rest.starts_with(b"&&") => (Some(Sign::And), 2),
            b'=' | b'!' | b'<' | b'>' if rest.get(1) == Some(&b'=') => (Some(Sign::Relation(2)), 2),
            b'<' | b'>' => (Some(Sign::Relation(1)), 1),
            b'+' | b'-' | b'*' | b'/' | b'%' => (Some(Sign::Arithmetic), 1),
            byte if is_word(byte) => {
                let len = rest.iter().take_while(|byte| is_word(**byte)).count();
                let is_raw = rest[..len].iter().any(|byte| byte.eq_ignore_ascii_case(&b'r'));
                match (&rest[..len], rest.get(len)) {
                    (word, Some(b'\'' | b'"')) if len <= 2 && word.iter().all(|byte| b"rRbB".contains(byte)) => {
                        (None, len + string_len(&rest[len..], is_raw))
                    }
                    (b"in", _) => (Some(Sign::Relation(2)), 2),
                    _ => (None, len),
                }
            }
            _ => (None, 1),
        };
        signs.extend(sign.filter(|_| depth == 0).map(|sign| (at, sign)));
        at += len;
    }
    signs
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of the string at the beginning, with its quotes.
fn string_len(bytes: &[u8], is_raw: bool) -> usize {
    let quote = bytes[0];
    let quotes = if bytes.starts_with(&[quote; 3]) { 3 } else { 1 };
    let mut at = quotes;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !is_raw => at += 2,
            byte if byte == quote && bytes[at..].starts_with(&[quote; 3][..quotes]) => return at + quotes,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the operands of a sign.
fn split<'t>(text: &'t str, signs: &[(usize, Sign)], of: Sign) -> Vec<&'t str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, _) in signs.iter().filter(|(_, sign)| *sign == of) {
        parts.push(&text[begin..*at]);
        begin = at + 2;
    }
    parts.push(&text[begin..]);
    parts
}

/// Returns the condition and both branches of a ternary; `None` for any other text.
fn ternary<'t>(text: &'t str, signs: &[(usize, Sign)]) -> Option<(&'t str, &'t str, &'t str)> {
    let first = signs.iter().position(|(_, sign)| *sign == Sign::Question)?;
    let mut open = 0;
    for (at, sign) in &signs[first..] {
        match sign {
            Sign::Question => open += 1,
            Sign::Colon => open -= 1,
            _ => {}
        }
        if open == 0 {
            let question = signs[first].0;
            return Some((&text[..question], &text[question + 1..*at], &text[at + 1..]));
        }
    }
    None
}

/// Returns the text without blanks and parentheses around it.
fn without_parentheses(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(inside) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        // `(a) && (b)` ends the first parenthesis before its last byte.
        if !is_balanced(inside) {
            break;
        }
        text = inside.trim();
    }
    text
}

/// Returns true if every parenthesis of the text is opened and closed in it.
fn is_balanced(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' => {
                let before = bytes[..at].iter().rev().take_while(|byte| is_word(**byte));
                let is_raw = before.take(2).any(|byte| byte.eq_ignore_ascii_case(&b'r'));
                at += string_len(&bytes[at..], is_raw);
                continue;
            }
            b'(' => depth += 1,
            b')' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            _ => {}
        }
        at += 1;
    }
    depth == 0
}

/// Text that ends after [`MAX_CHARS`].
#[derive(Default)]
struct Cut {
    text: String,
    chars: usize,
}

impl Write for Cut {
    /// Fails once the text is full.
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for letter in more.chars() {
            self.chars += 1;
            if self.chars > MAX_CHARS {
                self.text.push('…');
                return Err(fmt::Error);
            }
            self.text.push(if letter.is_control() { ' ' } else { letter });
        }
        Ok(())
    }
}

/// Formats a value or an error.
fn shown(value: Result<Value<'_>, Fault>, meter: &Meter<'_>) -> String {
    let mut cut = Cut::default();
    // An error of the formatter means that the text is full.
    let _ = match &value {
        Ok(value) => show(value, &mut cut, meter, MAX_DEPTH),
        Err(Fault::Error(why)) => write!(cut, "error: {why}"),
        Err(Fault::Stop(stop)) => write!(cut, "error: {}", stop.text()),
    };
    cut.text
}

fn show(value: &Value<'_>, cut: &mut Cut, meter: &Meter<'_>, depth_left: usize) -> fmt::Result {
    let Some(depth_left) = depth_left.checked_sub(1) else { return cut.write_str("…") };
    match value {
        Value::Null => cut.write_str("null"),
        Value::Bool(yes) => write!(cut, "{yes}"),
        Value::Int(number) => write!(cut, "{number}"),
        Value::Uint(number) => write!(cut, "{number}u"),
        Value::Double(number) => write!(cut, "{number:?}"),
        Value::String(text) => write!(cut, "'{}'", text.as_str()),
        Value::Bytes(bytes) => write!(cut, "{} bytes", bytes.len()),
        Value::Duration(span) => write!(cut, "duration('{span}')"),
        Value::Timestamp(time) => write!(cut, "timestamp('{time}')"),
        Value::Ip(ip) => write!(cut, "ip('{ip}')"),
        Value::Cidr(ip, bits) => write!(cut, "cidr('{ip}/{bits}')"),
        Value::Url(url) => write!(cut, "url('{}')", url.text()),
        Value::Type(name) => cut.write_str(name),
        Value::Optional(None) => cut.write_str("optional.none()"),
        Value::Optional(Some(inner)) => {
            cut.write_str("optional.of(")?;
            show(inner, cut, meter, depth_left)?;
            cut.write_str(")")
        }
        Value::Message(message) => {
            cut.write_str(message.name)?;
            cut.write_str("{")?;
            for (at, (name, value)) in message.fields.iter().enumerate() {
                write!(cut, "{}{name}: ", if at == 0 { "" } else { ", " })?;
                show(value, cut, meter, depth_left)?;
            }
            cut.write_str("}")
        }
        value if access::is_list(value) => {
            cut.write_str("[")?;
            let (mut first, mut result) = (true, Ok(()));
            // A value that cannot be read ends the text.
            let _ = access::each_item(value, meter, |item| {
                let before = if std::mem::take(&mut first) { "" } else { ", " };
                result = cut.write_str(before).and_then(|()| show(&item, cut, meter, depth_left));
                result.map_err(|_| Fault::error("the text is full"))
            });
            result?;
            cut.write_str("]")
        }
        Value::Map(_) | Value::Json(_) | Value::Struct(..) => {
            cut.write_str("{")?;
            let Ok(keys) = access::keys(value, meter) else { return cut.write_str("…}") };
            for (at, key) in keys.iter().enumerate() {
                cut.write_str(if at == 0 { "" } else { ", " })?;
                show(key, cut, meter, depth_left)?;
                cut.write_str(": ")?;
                match access::entry(value, key, meter) {
                    Ok(Some(entry)) => show(&entry, cut, meter, depth_left)?,
                    _ => cut.write_str("…")?,
                }
            }
            cut.write_str("}")
        }
        other => cut.write_str(other.type_name()),
    }
}
