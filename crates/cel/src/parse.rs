//! Parses an expression into a tree, within bounds on its size and depth. Sources: cel-go's `CEL.g4` and `parser.go`.
//!
//! Messages are the first of those that kube-apiserver gives, in the words of ANTLR: an error is found where, and
//! called what, its default error strategy would.

use std::mem;

use crate::{
    environment::RESERVED_NAMES,
    lexer::{Kind, Kinds, Token, tokens, unquoted},
    macros,
    meter::cut,
    tree::{
        ADD, CONDITIONAL, Call, EQUALS, Expr, Expression, Fault, Field, INDEX, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR,
        MapEntry, Message, NEGATE, OPT_INDEX, OPT_SELECT, Select, Tree,
    },
    value::Literal,
};

/// Maximum number of characters, as upstream.
const MAX_EXPRESSION_CHARS: usize = 100_000;

/// Maximum number of expressions in each other, as upstream: in brackets, and behind the colons of conditionals.
const MAX_RECURSION: usize = 250;

/// First tokens of a primary expression, with the sign of a number.
const MEMBER_START: Kinds = Kinds::of(&[
    Kind::LeftBracket,
    Kind::LeftBrace,
    Kind::LeftParenthesis,
    Kind::Dot,
    Kind::Minus,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Identifier,
]);

/// First tokens of an expression.
const START: Kinds = MEMBER_START.and(Kinds::of(&[Kind::Not]));

/// First tokens of an item that may be optional.
const ITEM_START: Kinds = START.and(Kinds::of(&[Kind::Question]));

/// Tokens that may follow a primary expression anywhere.
const OPERATORS: Kinds = Kinds::of(&[
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
    Kind::And,
    Kind::Or,
    Kind::LeftBracket,
    Kind::Dot,
    Kind::Minus,
    Kind::Plus,
    Kind::Star,
    Kind::Slash,
    Kind::Percent,
]);

const FIELD_NAME: Kinds = Kinds::of(&[Kind::Identifier, Kind::EscapedIdentifier]);
const FIELD_START: Kinds = FIELD_NAME.and(Kinds::of(&[Kind::Question]));

/// Parses an expression.
///
/// # Errors
/// The first fault, as `ERROR: <input>:LINE:COLUMN: MESSAGE`.
pub(super) fn parse(text: &str) -> Result<Tree, String> {
    let chars = text.chars().count();
    if chars > MAX_EXPRESSION_CHARS {
        return Err(format!("expression code point size exceeds limit: size: {chars}, limit {MAX_EXPRESSION_CHARS}"));
    }
    let (tokens, unknown) = tokens(text);
    let fault =
        unknown.map(|(at, token)| Fault::syntax(at, format!("token recognition error at: '{}'", in_one_line(token))));
    let mut parser = Parser { text, tokens, next: 0, follow: Kinds::of(&[]), depth: 0, fault };
    match (parser.whole(), parser.fault) {
        (Some(tree), None) => Ok(tree),
        (_, fault) => Err(fault.map(|fault| fault.message(text)).unwrap_or_default()),
    }
}

/// Returns the beginning of text in one line, for a message.
fn in_one_line(text: &str) -> String {
    cut(text).replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

/// An operator between two operands.
struct Operator {
    name: &'static str,
    binding: Binding,
    at: usize,
}

/// How strongly an operator binds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Binding {
    Or,
    And,
    Relation,
    Sum,
    Product,
}

/// Parses by recursive descent. Methods that return `None` have noted a fault. The stack that one level takes is small:
/// operators are reduced in a loop, and no method hands a fault up.
struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    next: usize,
    /// What may follow a primary expression here.
    follow: Kinds,
    /// Number of expressions around the next token.
    depth: usize,
    /// The first fault.
    fault: Option<Fault>,
}

impl<'t> Parser<'t> {
    /// Notes a fault if it is the first in the text.
    fn note(&mut self, fault: Fault) {
        if self.fault.as_ref().is_none_or(|known| fault.at < known.at) {
            self.fault = Some(fault);
        }
    }

    /// Notes the fault that ends the parser.
    fn fail<T>(&mut self, fault: Fault) -> Option<T> {
        self.note(fault);
        None
    }

    fn node(&mut self, at: usize, expr: Expr) -> Option<Tree> {
        let node = Expression::new(at, expr);
        if node.is_none() {
            self.note(Fault::too_deep());
        }
        node
    }

    fn call(&mut self, at: usize, name: &'static str, args: Vec<Tree>) -> Option<Tree> {
        self.node(at, Expr::Call(Call { name: name.into(), target: None, args }))
    }

    /// Returns a token ahead: the next one is 0.
    fn token(&self, ahead: usize) -> Token {
        self.tokens[(self.next + ahead).min(self.tokens.len() - 1)]
    }

    fn kind(&self, ahead: usize) -> Kind {
        self.token(ahead).kind
    }

    fn text(&self, token: Token) -> &'t str {
        &self.text[token.start..token.end]
    }

    fn advance(&mut self) -> Token {
        let token = self.token(0);
        self.next += 1;
        token
    }

    fn take(&mut self, kind: Kind) -> bool {
        let is_there = self.kind(0) == kind;
        self.next += usize::from(is_there);
        is_there
    }

    /// Notes a fault of the next token. The message is made of this one, in which `{}` is the token.
    fn unexpected<T>(&mut self, message: &str) -> Option<T> {
        let token = self.token(0);
        let shown = match token.kind {
            Kind::End => "<EOF>".to_owned(),
            _ => in_one_line(self.text(token)),
        };
        self.fail(Fault::syntax(token.start, message.replacen("{}", &shown, 1)))
    }

    /// Fails unless the next token is one of these.
    fn require(&mut self, expected: Kinds) -> Option<()> {
        if expected.contains(self.kind(0)) {
            return Some(());
        }
        let what = if expected.contains(self.kind(1)) { "extraneous" } else { "mismatched" };
        self.unexpected(&format!("{what} input '{{}}' expecting {expected}"))
    }

    /// Takes a token of this kind, behind which one of the others may stand.
    fn expect(&mut self, kind: Kind, behind: Kinds) -> Option<()> {
        let expected = Kinds::of(&[kind]);
        if self.kind(0) != kind && self.kind(1) != kind && behind.contains(self.kind(0)) {
            return self.unexpected(&format!("missing {expected} at '{{}}'"));
        }
        self.require(expected)?;
        self.advance();
        Some(())
    }

    /// Notes a fault of the token behind the next one, where no rule goes on.
    fn no_viable<T>(&mut self) -> Option<T> {
        let (first, last) = (self.token(0), self.token(1));
        let what = match last.kind {
            // As upstream, which words this case differently.
            Kind::True | Kind::False | Kind::Null if last.start == first.start + 1 => {
                format!("mismatched input {} expecting IDENTIFIER", Kinds::of(&[last.kind]))
            }
            _ => format!("no viable alternative at input '{}'", in_one_line(&self.text[first.start..last.end])),
        };
        self.fail(Fault::syntax(last.start, what))
    }

    fn whole(&mut self) -> Option<Tree> {
        let tree = self.expression(Kinds::of(&[Kind::End]))?;
        self.expect(Kind::End, Kinds::of(&[]))?;
        Some(tree)
    }

    /// Parses an expression, behind which one of these tokens may stand.
    fn expression(&mut self, behind: Kinds) -> Option<Tree> {
        self.depth += 1;
        if self.depth > MAX_RECURSION {
            return self
                .fail(Fault { at: None, what: format!("expression recursion limit exceeded: {MAX_RECURSION}") });
        }
        let outside = mem::replace(&mut self.follow, behind.and(OPERATORS).and(Kinds::of(&[Kind::Question])));
        let mut tree = self.operations()?;
        if self.kind(0) == Kind::Question {
            let at = self.advance().start;
            self.follow = OPERATORS.and(Kinds::of(&[Kind::Colon]));
            let yes = self.operations()?;
            self.expect(Kind::Colon, START)?;
            let no = self.expression(behind)?;
            tree = self.call(at, CONDITIONAL, vec![tree, yes, no])?;
        }
        self.follow = outside;
        self.depth -= 1;
        Some(tree)
    }

    /// Parses operands with operators between them.
    fn operations(&mut self) -> Option<Tree> {
        let (mut operands, mut operators) = (vec![self.unary()?], Vec::new());
        while let Some(operator) = self.operator() {
            self.reduce(Some(operator.binding), &mut operands, &mut operators)?;
            operators.push(operator);
            operands.push(self.unary()?);
        }
        self.reduce(None, &mut operands, &mut operators)?;
        operands.pop()
    }

    /// Takes an operator between operands, if it is next.
    fn operator(&mut self) -> Option<Operator> {
        let (name, binding) = match self.kind(0) {
            Kind::Or => (LOGICAL_OR, Binding::Or),
            Kind::And => (LOGICAL_AND, Binding::And),
            Kind::Equals => (EQUALS, Binding::Relation),
            Kind::NotEquals => ("_!=_", Binding::Relation),
            Kind::In => ("@in", Binding::Relation),
            Kind::Less => ("_<_", Binding::Relation),
            Kind::LessEquals => ("_<=_", Binding::Relation),
            Kind::GreaterEquals => ("_>=_", Binding::Relation),
            Kind::Greater => ("_>_", Binding::Relation),
            Kind::Plus => (ADD, Binding::Sum),
            Kind::Minus => ("_-_", Binding::Sum),
            Kind::Star => ("_*_", Binding::Product),
            Kind::Slash => ("_/_", Binding::Product),
            Kind::Percent => ("_%_", Binding::Product),
            _ => return None,
        };
        Some(Operator { name, binding, at: self.advance().start })
    }

    /// Applies the last operators to their operands, if they bind more strongly than one that follows.
    fn reduce(&mut self, next: Option<Binding>, operands: &mut Vec<Tree>, operators: &mut Vec<Operator>) -> Option<()> {
        while let Some(Operator { name, binding, .. }) = operators.last()
            && next.is_none_or(|next| *binding > next || *binding == next && next >= Binding::Relation)
        {
            let (name, binding) = (*name, *binding);
            // As upstream, for a tree that is less deep.
            let many = match binding {
                Binding::Or | Binding::And => operators.iter().rev().take_while(|one| one.binding == binding).count(),
                _ => 1,
            };
            let terms = operands.split_off(operands.len() - many - 1);
            let places: Vec<_> = operators.drain(operators.len() - many..).map(|one| one.at).collect();
            operands.push(self.balanced(name, &terms, &places)?);
        }
        Some(())
    }

    /// Returns a balanced tree of terms and, between them, operators at these places.
    fn balanced(&mut self, name: &'static str, terms: &[Tree], places: &[usize]) -> Option<Tree> {
        if let [term] = terms {
            return Some(term.clone());
        }
        let middle = places.len() / 2;
        let left = self.balanced(name, &terms[..=middle], &places[..middle])?;
        let right = self.balanced(name, &terms[middle + 1..], &places[middle + 1..])?;
        self.call(places[middle], name, vec![left, right])
    }

    fn unary(&mut self) -> Option<Tree> {
        let (sign, name) = match (self.kind(0), self.kind(1)) {
            (Kind::Not, _) => (Kind::Not, LOGICAL_NOT),
            (Kind::Minus, Kind::Int | Kind::Float) => return self.member(),
            (Kind::Minus, _) => (Kind::Minus, NEGATE),
            _ => {
                self.require(START)?;
                return self.member();
            }
        };
        let at = self.token(0).start;
        let mut is_odd = false;
        while self.kind(0) == sign {
            if sign == Kind::Minus && !MEMBER_START.contains(self.kind(1)) {
                return self.no_viable();
            }
            self.advance();
            is_odd = !is_odd;
        }
        if !START.contains(self.kind(0)) {
            return self.unexpected(&format!("extraneous input '{{}}' expecting {START}"));
        }
        let operand = self.member()?;
        // Two of them are none.
        if is_odd { self.call(at, name, vec![operand]) } else { Some(operand) }
    }

    fn member(&mut self) -> Option<Tree> {
        let mut tree = self.primary()?;
        while matches!(self.kind(0), Kind::Dot | Kind::LeftBracket) {
            tree = match (self.kind(0), self.kind(1)) {
                (Kind::LeftBracket, _) => self.index(tree)?,
                (_, Kind::Identifier) if self.kind(2) == Kind::LeftParenthesis => self.member_call(tree)?,
                _ => self.select(tree)?,
            };
        }
        Some(tree)
    }

    fn index(&mut self, operand: Tree) -> Option<Tree> {
        let at = self.advance().start;
        self.require(ITEM_START)?;
        let name = if self.take(Kind::Question) { OPT_INDEX } else { INDEX };
        let index = self.expression(Kinds::of(&[Kind::RightBracket]))?;
        self.expect(Kind::RightBracket, self.follow)?;
        self.call(at, name, vec![operand, index])
    }

    fn member_call(&mut self, target: Tree) -> Option<Tree> {
        self.advance();
        let name = self.advance();
        let at = self.advance().start;
        let args = self.arguments()?;
        self.call_or_macro(at, self.text(name), Some(target), args)
    }

    fn select(&mut self, operand: Tree) -> Option<Tree> {
        let at = self.token(0).start;
        match self.kind(1) {
            Kind::Identifier | Kind::EscapedIdentifier => {
                self.advance();
                let field = self.field_name();
                self.node(at, Expr::Select(Select { operand, field, test: false }))
            }
            Kind::Question => {
                self.next += 2;
                self.require(FIELD_NAME)?;
                let of_field = self.token(0).start;
                let field = Expr::Literal(Literal::String(self.field_name()));
                let field = self.node(of_field, field)?;
                self.call(at, OPT_SELECT, vec![operand, field])
            }
            _ => self.no_viable(),
        }
    }

    /// Takes the name of a field, without its backticks.
    fn field_name(&mut self) -> Box<str> {
        let token = self.advance();
        self.text(token).trim_matches('`').into()
    }

    fn primary(&mut self) -> Option<Tree> {
        let first = self.token(0);
        match first.kind {
            Kind::Identifier => self.named(),
            Kind::Dot if self.kind(1) == Kind::Identifier => self.named(),
            Kind::LeftParenthesis => {
                self.advance();
                let tree = self.expression(Kinds::of(&[Kind::RightParenthesis]))?;
                self.expect(Kind::RightParenthesis, self.follow)?;
                Some(tree)
            }
            Kind::LeftBracket => self.list(),
            Kind::LeftBrace => self.map(),
            Kind::Dot => self.no_viable(),
            Kind::Minus if !matches!(self.kind(1), Kind::Int | Kind::Float) => self.no_viable(),
            _ => self.literal(),
        }
    }

    /// Parses a name, a call of a global function, or a message.
    fn named(&mut self) -> Option<Tree> {
        let start = self.token(0).start;
        let has_dot = self.take(Kind::Dot);
        let mut ahead = 1;
        while self.kind(ahead) == Kind::Dot && self.kind(ahead + 1) == Kind::Identifier {
            ahead += 2;
        }
        if self.kind(ahead) == Kind::LeftBrace {
            let dot = if has_dot { "." } else { "" };
            let names: Vec<_> = (0..ahead).map(|ahead| self.text(self.token(ahead))).collect();
            self.next += ahead;
            return self.message(format!("{dot}{}", names.concat()).into());
        }
        let token = self.advance();
        let name = self.text(token);
        if RESERVED_NAMES.contains(&name) {
            self.note(Fault::new(start, format!("reserved identifier: {name}")));
        }
        let name = if has_dot { format!(".{name}").into() } else { name.into() };
        if self.kind(0) != Kind::LeftParenthesis {
            return self.node(token.start, Expr::Ident(name));
        }
        let at = self.advance().start;
        let args = self.arguments()?;
        self.call_or_macro(at, &name, None, args)
    }

    fn call_or_macro(&mut self, at: usize, name: &str, target: Option<Tree>, args: Vec<Tree>) -> Option<Tree> {
        match macros::expand(at, name, target.as_ref(), &args) {
            // The parser goes on, as the text may have a fault before this one.
            Some(Err(fault)) if fault.at.is_some() => {
                self.note(fault);
                self.node(at, Expr::Literal(Literal::Null))
            }
            Some(Err(fault)) => self.fail(fault),
            Some(Ok(expanded)) => Some(expanded),
            None => self.node(at, Expr::Call(Call { name: name.to_owned().into(), target, args })),
        }
    }

    /// Parses the arguments of a call, behind its parenthesis.
    fn arguments(&mut self) -> Option<Vec<Tree>> {
        let mut args = Vec::new();
        self.require(START.and(Kinds::of(&[Kind::RightParenthesis])))?;
        if self.kind(0) != Kind::RightParenthesis {
            args.push(self.expression(Kinds::of(&[Kind::Comma, Kind::RightParenthesis]))?);
            while self.take(Kind::Comma) {
                args.push(self.expression(Kinds::of(&[Kind::Comma, Kind::RightParenthesis]))?);
            }
        }
        self.expect(Kind::RightParenthesis, self.follow)?;
        Some(args)
    }

    /// Parses items that begin with one of these, up to the end of a list, a map or a message.
    fn items<T>(&mut self, start: Kinds, end: Kind, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        let behind = Kinds::of(&[Kind::Comma, end]);
        self.require(start.and(behind))?;
        if start.contains(self.kind(0)) {
            items.push(item(self)?);
            while self.kind(0) == Kind::Comma && start.contains(self.kind(1)) {
                self.advance();
                items.push(item(self)?);
            }
            self.require(behind)?;
        }
        self.take(Kind::Comma);
        self.expect(end, self.follow)?;
        Some(items)
    }

    fn list(&mut self) -> Option<Tree> {
        let at = self.advance().start;
        let items = self.items(ITEM_START, Kind::RightBracket, |parser| {
            let optional = parser.take(Kind::Question);
            Some((parser.expression(Kinds::of(&[Kind::Comma, Kind::RightBracket]))?, optional))
        })?;
        self.node(at, Expr::List(items))
    }

    fn map(&mut self) -> Option<Tree> {
        let at = self.advance().start;
        let entries = self.items(ITEM_START, Kind::RightBrace, |parser| {
            let optional = parser.take(Kind::Question);
            let key = parser.expression(Kinds::of(&[Kind::Colon]))?;
            parser.expect(Kind::Colon, START)?;
            let value = parser.expression(Kinds::of(&[Kind::Comma, Kind::RightBrace]))?;
            Some(MapEntry { key, value, optional })
        })?;
        self.node(at, Expr::Map(entries))
    }

    fn message(&mut self, name: Box<str>) -> Option<Tree> {
        let at = self.advance().start;
        let fields = self.items(FIELD_START, Kind::RightBrace, |parser| {
            let optional = parser.take(Kind::Question);
            parser.require(FIELD_NAME)?;
            let name = parser.field_name();
            parser.expect(Kind::Colon, START)?;
            let value = parser.expression(Kinds::of(&[Kind::Comma, Kind::RightBrace]))?;
            Some(Field { name, value, optional })
        })?;
        self.node(at, Expr::Message(Message { name, fields }))
    }

    fn literal(&mut self) -> Option<Tree> {
        let start = self.token(0).start;
        let sign = if self.take(Kind::Minus) { "-" } else { "" };
        let token = self.advance();
        let text = self.text(token);
        let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
        let literal = match token.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => i64::from_str_radix(&format!("{sign}{digits}"), radix)
                .map(Literal::Int)
                .map_err(|_| "invalid int literal"),
            Kind::Uint => u64::from_str_radix(digits.trim_end_matches(['u', 'U']), radix)
                .map(Literal::Uint)
                .map_err(|_| "invalid uint literal"),
            Kind::Float => match format!("{sign}{text}").parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
                _ => Err("invalid double literal"),
            },
            Kind::Bytes => unquoted(text, true).map(|bytes| Literal::Bytes(bytes.into())),
            _ => unquoted(text, false)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "unable to unescape string"))
                .map(|text| Literal::String(text.into())),
        };
        let literal = literal.unwrap_or_else(|what| {
            self.note(Fault::new(start, what));
            Literal::Null
        });
        self.node(start, Expr::Literal(literal))
    }
}
