//! The function `format` of cel-go's string library in the second version, in the locale en_US. Source:
//! `ext/formatting.go`, and `golang.org/x/text/message` for `%f` and `%e`.

use std::fmt::Write as _;

use crate::{
    access,
    functions::{
        convert,
        function::{Cost, Row, none, text},
        regex::unprintable,
    },
    meter::{Fault, Meter},
    types::Type,
    value::Value,
};

/// Digits after the decimal point if a clause has no precision.
const DEFAULT_PRECISION: usize = 6;

/// One clause of a format, such as `%.2f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    pub(crate) verb: Verb,
    /// Digits after the decimal point; in scientific notation, as in upstream, the width.
    pub(crate) precision: usize,
}

/// Notation of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    String,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

/// One part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatPart<'t> {
    /// Literal text.
    Text(&'t str),
    Clause(Clause),
}

/// Returns the first part of a non-empty format, and the rest.
pub(crate) fn first(format: &str) -> Result<(FormatPart<'_>, &str), &'static str> {
    let Some(behind) = format.strip_prefix('%') else {
        let (text, rest) = format.split_at(format.find('%').unwrap_or(format.len()));
        return Ok((FormatPart::Text(text), rest));
    };
    if let Some(rest) = behind.strip_prefix('%') {
        return Ok((FormatPart::Text("%"), rest));
    }
    let (precision, behind) = match behind.strip_prefix('.') {
        None => (DEFAULT_PRECISION, behind),
        Some(number) => {
            let (digits, behind) = number.split_at(number.bytes().take_while(u8::is_ascii_digit).count());
            (digits.parse().map_err(|_| "could not parse formatting clause: its precision is no number")?, behind)
        }
    };
    let verb = match behind.as_bytes().first() {
        None => return Err("unexpected end of string"),
        Some(b's') => Verb::String,
        Some(b'd') => Verb::Decimal,
        Some(b'f') => Verb::Fixed,
        Some(b'e') => Verb::Scientific,
        Some(b'b') => Verb::Binary,
        Some(b'x') => Verb::Hex { upper: false },
        Some(b'X') => Verb::Hex { upper: true },
        Some(b'o') => Verb::Octal,
        Some(_) => return Err("could not parse formatting clause: unrecognized formatting clause"),
    };
    Ok((FormatPart::Clause(Clause { verb, precision }), &behind[1..]))
}

impl Verb {
    /// Returns upstream's message for an argument of another type.
    pub(crate) const fn misfit(self) -> &'static str {
        match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                 timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed => "fixed-point clause can only be used on doubles",
            Self::Scientific => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        }
    }

    /// Returns true if the clause accepts a value of this type. A string may name a special number, such as `NaN`.
    pub(crate) fn takes(self, of: &Type) -> bool {
        match (self, of) {
            (_, Type::Dyn) => true,
            (Self::String, of) => !matches!(of, Type::Struct(..) | Type::Opaque(_) | Type::Optional(_)),
            (Self::Fixed | Self::Scientific, of) => matches!(of, Type::Double | Type::String),
            (_, Type::Int | Type::Uint) => true,
            (Self::Binary, Type::Bool) | (Self::Hex { .. }, Type::String | Type::Bytes) => true,
            _ => false,
        }
    }
}

/// Checks that the arguments match the clauses of a format in number and type. Each argument has its type and, if there
/// is one, a type inside it that cannot be formatted as text.
pub(crate) fn check(format: &str, arguments: &[(Type, Option<Type>)]) -> Result<(), String> {
    let (mut rest, mut clauses) = (format, 0);
    while !rest.is_empty() {
        let (part, behind) = first(rest)?;
        rest = behind;
        let FormatPart::Clause(Clause { verb, .. }) = part else { continue };
        let Some((of, odd)) = arguments.get(clauses) else {
            return Err(format!("index {clauses} out of range"));
        };
        let odd = odd.as_ref().filter(|_| verb == Verb::String).or((!verb.takes(of)).then_some(of));
        if let Some(odd) = odd {
            return Err(format!("error during formatting: {}, was given {odd}", verb.misfit()));
        }
        clauses += 1;
    }
    if arguments.len() > clauses {
        let given = arguments.len();
        return Err(format!("too many arguments supplied to string.format (expected {clauses}, got {given})"));
    }
    Ok(())
}

/// Maximum depth of formatted lists and maps.
const MAX_FORMATTED_DEPTH: usize = 200;

/// Maximum of a precision without its last digit, as in upstream, which writes [`NO_VERB`] for more.
const MAX_PRECISION: usize = 1_000_000;
const NO_VERB: &str = "%!(NOVERB)";

/// Maximum number of digits of a double after its decimal point.
const MAX_FRACTION_DIGITS: usize = 1_074;

pub(super) const ROWS: &[Row] = &[Row("format", &["string|list(dyn)->string"], Cost::First(0.1), format)];

fn format<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let (mut rest, Some(list)) = (text(args.first())?, args.get(1)) else { return none() };
    if access::list_len(list, meter)?.is_none() {
        return none();
    }
    let mut written = Formatter { text: String::new(), meter };
    let mut at = 0;
    while !rest.is_empty() {
        let (part, behind) = first(rest).map_err(Fault::error)?;
        rest = behind;
        match part {
            FormatPart::Text(text) => written.push(text)?,
            FormatPart::Clause(clause) => {
                let value = access::list_item(list, at, meter)?;
                let value = value.ok_or_else(|| Fault::error(format!("index {at} out of range")))?;
                written.clause(clause, &value)?;
                at += 1;
            }
        }
    }
    Ok(Value::made(written.text))
}

/// A formatted text while it is written.
struct Formatter<'m> {
    text: String,
    meter: &'m Meter<'m>,
}

impl Formatter<'_> {
    /// Appends a text and pays for it.
    fn push(&mut self, text: &str) -> Result<(), Fault> {
        self.meter.make(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    fn clause(&mut self, Clause { verb, precision }: Clause, value: &Value<'_>) -> Result<(), Fault> {
        let misfit = || Fault::error(format!("{}, was given {}", verb.misfit(), value.type_name()));
        match verb {
            Verb::String => self.plain(value, MAX_FORMATTED_DEPTH),
            Verb::Decimal => self.push(&whole(value, |number| number.to_string()).ok_or_else(misfit)?),
            Verb::Octal => self.push(&whole(value, |number| format!("{number:o}")).ok_or_else(misfit)?),
            Verb::Binary => match value {
                Value::Bool(yes) => self.push(if *yes { "1" } else { "0" }),
                value => self.push(&whole(value, |number| format!("{number:b}")).ok_or_else(misfit)?),
            },
            Verb::Hex { upper } => match value {
                Value::String(text) => self.hex(text.as_str().as_bytes(), upper),
                Value::Bytes(bytes) => self.hex(bytes, upper),
                value => {
                    let hex = |number: u64| if upper { format!("{number:X}") } else { format!("{number:x}") };
                    self.push(&whole(value, hex).ok_or_else(misfit)?)
                }
            },
            Verb::Fixed => self.push(&fixed(double(value).ok_or_else(misfit)?, precision)),
            Verb::Scientific => self.push(&scientific(double(value).ok_or_else(misfit)?, precision)),
        }
    }

    fn hex(&mut self, bytes: &[u8], upper: bool) -> Result<(), Fault> {
        self.meter.make(bytes.len().saturating_mul(2))?;
        for byte in bytes {
            // Writing to a string does not fail.
            _ = if upper { write!(self.text, "{byte:02X}") } else { write!(self.text, "{byte:02x}") };
        }
        Ok(())
    }

    /// Writes a value as `%s` does.
    fn plain(&mut self, value: &Value<'_>, depth_left: usize) -> Result<(), Fault> {
        match value {
            Value::Null => self.push("null"),
            Value::Type(name) => self.push(name),
            Value::String(_)
            | Value::Bytes(_)
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Duration(_)
            | Value::Timestamp(_) => match convert::to_string(std::slice::from_ref(value), self.meter)? {
                Value::String(text) => self.push(text.as_str()),
                _ => none().map(drop),
            },
            value => {
                let misfit = || Fault::error(format!("{}, was given {}", Verb::String.misfit(), value.type_name()));
                if self.container(value, depth_left)? { Ok(()) } else { Err(misfit()) }
            }
        }
    }

    /// Writes a value inside a list or map, as an expression spells it.
    fn spelled(&mut self, value: &Value<'_>, depth_left: usize) -> Result<(), Fault> {
        match value {
            Value::String(text) => self.quoted(text.as_str()),
            Value::Bytes(bytes) => {
                self.push("b")?;
                match convert::to_string(&[Value::Bytes(bytes.clone())], self.meter)? {
                    Value::String(text) => self.quoted(text.as_str()),
                    _ => none().map(drop),
                }
            }
            Value::Double(number) if number.is_finite() => self.push(&format!("{number:.6}")),
            Value::Double(number) => self.quoted(&convert::go_double(*number)),
            Value::Timestamp(time) => self.push(&format!("timestamp(\"{time}\")")),
            Value::Duration(span) => self.push(&format!("duration(\"{span}\")")),
            Value::Null | Value::Type(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_) => {
                self.plain(value, depth_left)
            }
            value => {
                if self.container(value, depth_left)? {
                    return Ok(());
                }
                Err(Fault::error(format!("no formatting function for {}", value.type_name())))
            }
        }
    }

    /// Writes a list or map. Returns false if the value is neither.
    fn container(&mut self, value: &Value<'_>, depth_left: usize) -> Result<bool, Fault> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err(Fault::error("the value is nested too deep"));
        };
        if let Some(len) = access::list_len(value, self.meter)? {
            self.push("[")?;
            for at in 0..len {
                if at > 0 {
                    self.push(", ")?;
                }
                if let Some(item) = access::list_item(value, at, self.meter)? {
                    self.spelled(&item, depth_left)?;
                }
            }
            self.push("]")?;
            return Ok(true);
        }
        if access::map_len(value, self.meter)?.is_none() {
            return Ok(false);
        }
        let mut keys = Vec::new();
        for key in access::keys(value, self.meter)?.iter() {
            if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
                return Err(Fault::error(format!("no formatting function for map key of type {}", key.type_name())));
            }
            let mut spelled = Formatter { text: String::new(), meter: self.meter };
            spelled.spelled(key, depth_left)?;
            keys.push((spelled.text, key.clone()));
        }
        self.meter.step((keys.len() as u64).saturating_mul(16))?;
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.push("{")?;
        for (at, (spelled, key)) in keys.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            self.push(spelled)?;
            self.push(":")?;
            if let Some(value) = access::entry(value, key, self.meter)? {
                self.spelled(&value, depth_left)?;
            }
        }
        self.push("}")?;
        Ok(true)
    }

    /// Writes a text in quotes as Go's `strconv.Quote` does.
    fn quoted(&mut self, text: &str) -> Result<(), Fault> {
        self.push("\"")?;
        let mut start = 0;
        for odd in unprintable(text) {
            self.push(&text[start..odd.start])?;
            start = odd.end;
            for char in text[odd].chars() {
                match char {
                    '"' => self.push("\\\"")?,
                    '\\' => self.push("\\\\")?,
                    '\u{7}' => self.push("\\a")?,
                    '\u{8}' => self.push("\\b")?,
                    '\u{c}' => self.push("\\f")?,
                    '\n' => self.push("\\n")?,
                    '\r' => self.push("\\r")?,
                    '\t' => self.push("\\t")?,
                    '\u{b}' => self.push("\\v")?,
                    char if char.is_ascii() => self.push(&format!("\\x{:02x}", u32::from(char)))?,
                    char if char < '\u{10000}' => self.push(&format!("\\u{:04x}", u32::from(char)))?,
                    char => self.push(&format!("\\U{:08x}", u32::from(char)))?,
                }
            }
        }
        self.push(&text[start..])?;
        self.push("\"")
    }
}

/// Formats a whole number with its sign; `None` for any other value.
fn whole(value: &Value<'_>, digits: impl Fn(u64) -> String) -> Option<String> {
    match value {
        Value::Int(number) if *number < 0 => Some(format!("-{}", digits(number.unsigned_abs()))),
        Value::Int(number) => Some(digits(number.unsigned_abs())),
        Value::Uint(number) => Some(digits(*number)),
        _ => None,
    }
}

/// Returns a double, or the special number that a string names.
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the sign of a number, or an error with the text of NaN or an infinity.
fn sign_or_special(number: f64) -> Result<&'static str, &'static str> {
    match number {
        number if number.is_nan() => Err("NaN"),
        f64::INFINITY => Err("∞"),
        f64::NEG_INFINITY => Err("-∞"),
        number if number < 0.0 => Ok("-"),
        _ => Ok(""),
    }
}

/// Formats a number with commas between thousands. As in upstream, the precision is truncated to 8 bits for the minimum
/// number of digits after the point, and to 16 bits with a sign for the maximum.
fn fixed(number: f64, precision: usize) -> String {
    if precision / 10 > MAX_PRECISION {
        return NO_VERB.to_owned();
    }
    let sign = match sign_or_special(number) {
        Ok(sign) => sign,
        Err(special) => return special.to_owned(),
    };
    let (least, most) = (precision as u8, precision as u16 as i16);
    let digits = match usize::try_from(most) {
        Ok(most) => format!("{:.*}", most.min(MAX_FRACTION_DIGITS), number.abs()),
        Err(_) => number.abs().to_string(),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let mut text = sign.to_owned();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !fraction.is_empty() || least > 0 {
        text.push('.');
        text.push_str(fraction);
        text.extend(std::iter::repeat_n('0', usize::from(least).saturating_sub(fraction.len())));
    }
    text
}

/// Formats a number with six digits after the point. As in upstream, the precision is the minimum width.
fn scientific(number: f64, width: usize) -> String {
    if width / 10 > MAX_PRECISION {
        return NO_VERB.to_owned();
    }
    let body = match sign_or_special(number) {
        Err(special) => special.to_owned(),
        Ok(sign) => {
            let digits = format!("{:.6e}", number.abs());
            let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
            let (minus, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
            let mut text = format!("{sign}{mantissa}×10{minus}");
            for digit in format!("{exponent:0>2}").bytes() {
                text.push(['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][usize::from(digit - b'0') % 10]);
            }
            text
        }
    };
    // As in upstream, the width is truncated to 16 bits.
    format!("{body:>width$}", width = usize::from(width as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_parsed_part_by_part() {
        let parts = |mut rest: &'static str| {
            let mut parts = Vec::new();
            while !rest.is_empty() {
                let (part, behind) = first(rest)?;
                parts.push(part);
                rest = behind;
            }
            Ok::<_, &str>(parts)
        };
        let clause = |verb, precision| FormatPart::Clause(Clause { verb, precision });
        assert_eq!(
            parts("é%%%s%.2f%X"),
            Ok(vec![
                FormatPart::Text("é"),
                FormatPart::Text("%"),
                clause(Verb::String, 6),
                clause(Verb::Fixed, 2),
                clause(Verb::Hex { upper: true }, 6),
            ])
        );
        for wrong in ["%", "a%", "%.", "%.2", "%.d", "%é", "%99999999999999999999d", "%.99999999999999999999f", "%-d"]
        {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }
}
