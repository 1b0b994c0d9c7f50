//! Splits an expression into tokens, and reads literals. Source: the lexer rules of cel-go's `CEL.g4`, `unescape.go`.

/// The kind of a token, in the order in which messages list kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParenthesis,
    RightParenthesis,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
}

/// Kinds as messages name them, in their order.
const NAMES: [&str; 36] = [
    "<EOF>",
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];

/// A set of kinds.
#[derive(Clone, Copy)]
pub(super) struct Kinds(u64);

impl Kinds {
    pub(super) const fn of(kinds: &[Kind]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u64;
            at += 1;
        }
        Self(bits)
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }
}

impl std::fmt::Display for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = (0..NAMES.len()).filter(|kind| self.0 & 1 << kind != 0).map(|kind| NAMES[kind]).collect();
        match names[..] {
            [name] => f.write_str(name),
            _ => write!(f, "{{{}}}", names.join(", ")),
        }
    }
}

/// A token, by its place in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Returns the tokens, of which the last is [`Kind::End`], and the place of the first text that is no token.
pub(super) fn tokens(text: &str) -> (Vec<Token>, Option<(usize, &str)>) {
    let (mut tokens, mut fault, mut start) = (Vec::new(), None, 0);
    let bytes = text.as_bytes();
    while let Some(&first) = bytes.get(start) {
        if matches!(first, b' ' | b'\t' | b'\r' | b'\n' | b'\x0c') {
            start += 1;
        } else if bytes[start..].starts_with(b"//") {
            start = skip(bytes, start, |byte| byte != b'\n');
        } else {
            match token(bytes, start) {
                Ok((kind, end)) => {
                    tokens.push(Token { kind, start, end });
                    start = end;
                }
                // The lexer goes on behind the character at which it fails.
                Err(failed) => {
                    let end = failed + text[failed..].chars().next().map_or(0, char::len_utf8);
                    fault = fault.or(Some((start, &text[start..end])));
                    start = end;
                }
            }
        }
    }
    tokens.push(Token { kind: Kind::End, start: text.len(), end: text.len() });
    (tokens, fault)
}

/// Returns the first place at or behind `at` whose byte is not like this.
fn skip(bytes: &[u8], at: usize, like: impl Fn(u8) -> bool) -> usize {
    bytes[at..].iter().position(|byte| !like(*byte)).map_or(bytes.len(), |many| at + many)
}

/// Returns the kind and the end of the longest token at `at`, or the place of the character that fits none.
fn token(bytes: &[u8], at: usize) -> Result<(Kind, usize), usize> {
    let next = bytes.get(at + 1).copied();
    let one = |kind| Ok((kind, at + 1));
    let two = |second, pair, single: Option<Kind>| match (next == Some(second), single) {
        (true, _) => Ok((pair, at + 2)),
        (false, Some(single)) => Ok((single, at + 1)),
        (false, None) => Err(at + 1),
    };
    match bytes[at] {
        b'=' => two(b'=', Kind::Equals, None),
        b'!' => two(b'=', Kind::NotEquals, Some(Kind::Not)),
        b'<' => two(b'=', Kind::LessEquals, Some(Kind::Less)),
        b'>' => two(b'=', Kind::GreaterEquals, Some(Kind::Greater)),
        b'&' => two(b'&', Kind::And, None),
        b'|' => two(b'|', Kind::Or, None),
        b'[' => one(Kind::LeftBracket),
        b']' => one(Kind::RightBracket),
        b'{' => one(Kind::LeftBrace),
        b'}' => one(Kind::RightBrace),
        b'(' => one(Kind::LeftParenthesis),
        b')' => one(Kind::RightParenthesis),
        b'.' if next.is_some_and(|next| next.is_ascii_digit()) => Ok(number(bytes, at)),
        b'.' => one(Kind::Dot),
        b',' => one(Kind::Comma),
        b'-' => one(Kind::Minus),
        b'?' => one(Kind::Question),
        b':' => one(Kind::Colon),
        b'+' => one(Kind::Plus),
        b'*' => one(Kind::Star),
        b'/' => one(Kind::Slash),
        b'%' => one(Kind::Percent),
        b'0'..=b'9' => Ok(number(bytes, at)),
        b'"' | b'\'' => Ok((Kind::String, string(bytes, at, false)?)),
        b'`' => {
            let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(&byte);
            match skip(bytes, at + 1, inner) {
                end if end > at + 1 && bytes.get(end) == Some(&b'`') => Ok((Kind::EscapedIdentifier, end + 1)),
                failed => Err(failed),
            }
        }
        b'A'..=b'Z' | b'a'..=b'z' | b'_' => Ok(word(bytes, at)),
        _ => Err(at),
    }
}

/// Returns a literal with a prefix, a keyword or an identifier.
fn word(bytes: &[u8], at: usize) -> (Kind, usize) {
    let is_bytes = matches!(bytes[at], b'b' | b'B');
    let at_raw = at + usize::from(is_bytes);
    let is_raw = matches!(bytes.get(at_raw), Some(b'r' | b'R'));
    let quote = at_raw + usize::from(is_raw);
    if quote > at
        && matches!(bytes.get(quote), Some(b'"' | b'\''))
        && let Ok(end) = string(bytes, quote, is_raw)
    {
        return (if is_bytes { Kind::Bytes } else { Kind::String }, end);
    }
    let end = skip(bytes, at, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let kind = match &bytes[at..end] {
        b"in" => Kind::In,
        b"true" => Kind::True,
        b"false" => Kind::False,
        b"null" => Kind::Null,
        _ => Kind::Identifier,
    };
    (kind, end)
}

fn number(bytes: &[u8], at: usize) -> (Kind, usize) {
    let digits = |at| skip(bytes, at, |byte| byte.is_ascii_digit());
    let with_suffix = |end: usize| match bytes.get(end) {
        Some(b'u' | b'U') => (Kind::Uint, end + 1),
        _ => (Kind::Int, end),
    };
    if bytes[at..].starts_with(b"0x") {
        let end = skip(bytes, at + 2, |byte| byte.is_ascii_hexdigit());
        if end > at + 2 {
            return with_suffix(end);
        }
    }
    let whole = digits(at);
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > end + 1 {
        end = digits(end + 1);
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits((end + 1 + sign).min(bytes.len()));
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    if end > whole { (Kind::Float, end) } else { with_suffix(whole) }
}

/// Returns the end of the string whose quotes begin at `at`, or the place of the character that ends it too early.
fn string(bytes: &[u8], at: usize, is_raw: bool) -> Result<usize, usize> {
    let quote = bytes[at];
    let is_triple = |at: usize| bytes.get(at..at + 3) == Some(&[quote; 3]);
    if is_triple(at) {
        let mut end = at + 3;
        while end < bytes.len() {
            match bytes[end] {
                b'\\' if !is_raw => match escape(bytes, end) {
                    Ok(next) => end = next,
                    Err(_) => break,
                },
                _ if is_triple(end) => return Ok(end + 3),
                _ => end += 1,
            }
        }
        // Without an end, the first two quotes are an empty string.
        return Ok(at + 2);
    }
    let mut end = at + 1;
    loop {
        match bytes.get(end) {
            Some(byte) if *byte == quote => return Ok(end + 1),
            Some(b'\\') if !is_raw => end = escape(bytes, end)?,
            None | Some(b'\n' | b'\r') => return Err(end),
            Some(_) => end += 1,
        }
    }
}

/// Returns the end of the escape at `at`, or the place of the character that does not belong to one.
fn escape(bytes: &[u8], at: usize) -> Result<usize, usize> {
    let digits = |many: usize, is_digit: fn(&u8) -> bool| {
        let first = at + 2;
        let end = (first..first + many).find(|at| !bytes.get(*at).is_some_and(is_digit));
        end.map_or(Ok(first + many), Err)
    };
    match bytes.get(at + 1) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(at + 2),
        Some(b'x' | b'X') => digits(2, u8::is_ascii_hexdigit),
        Some(b'u') => digits(4, u8::is_ascii_hexdigit),
        Some(b'U') => digits(8, u8::is_ascii_hexdigit),
        Some(b'0'..=b'3') => digits(2, |byte| matches!(byte, b'0'..=b'7')),
        _ => Err(at + 1),
    }
}

/// Returns the bytes of a token of the kind `String` or `Bytes`; those of a string are UTF-8.
///
/// # Errors
/// The message, in upstream's words.
pub(super) fn unquoted(token: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let token = if is_bytes { &token[1..] } else { token };
    let quoted = token.trim_start_matches(['r', 'R']);
    let quotes = if quoted.len() >= 6 && (quoted.starts_with("\"\"\"") || quoted.starts_with("'''")) { 3 } else { 1 };
    let text = quoted[quotes..quoted.len() - quotes].replace("\r\n", "\n").replace('\r', "\n");
    if quoted.len() < token.len() {
        return Ok(text.into_bytes());
    }
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text.as_str());
    while let Some((before, escaped)) = rest.split_once('\\') {
        plain.extend_from_slice(before.as_bytes());
        // The lexer has checked the form of every escape.
        let (digits, radix) = match escaped.as_bytes()[0] {
            b'x' | b'X' => (1..3, 16),
            b'u' | b'U' if is_bytes => return Err("unable to unescape string"),
            b'u' => (1..5, 16),
            b'U' => (1..9, 16),
            b'0'..=b'3' => (0..3, 8),
            other => {
                plain.push(match other {
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'f' => 0x0c,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 0x0b,
                    itself => itself,
                });
                rest = &escaped[1..];
                continue;
            }
        };
        rest = &escaped[digits.end..];
        let code = u32::from_str_radix(&escaped[digits], radix).map_err(|_| "unable to unescape string")?;
        match u8::try_from(code) {
            Ok(byte) if is_bytes => plain.push(byte),
            _ => {
                let code = char::from_u32(code).ok_or("invalid unicode code point")?;
                plain.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    plain.extend_from_slice(rest.as_bytes());
    Ok(plain)
}
