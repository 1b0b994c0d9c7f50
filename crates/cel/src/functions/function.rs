//! Function: its signatures, its cost and its implementation; and helpers for implementations.

use std::fmt;

use crate::{
    access,
    input::Text,
    meter::{Fault, Meter},
    types::Type,
    value::Value,
};

/// Implementation of a function. The first argument of a member function is its target.
pub(crate) type Call = for<'a> fn(&[Value<'a>], &Meter<'_>) -> Result<Value<'a>, Fault>;

/// Cost of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cost {
    /// One.
    One,
    /// This factor of the first argument's size.
    First(f64),
    /// This factor of the second argument's size.
    Second(f64),
    /// This factor of the result's size.
    Result(f64),
    /// Size of the searched list.
    InList,
    /// A tenth of the smaller argument's size; one for Kubernetes' own types.
    Equal,
    /// A tenth of the smaller argument's size.
    Smaller,
    /// A tenth of the smaller argument's size; one if several signatures fit.
    Ordered,
    /// A tenth of twice a network's size, and of an address as text.
    InNetwork,
    /// A tenth of three times a network's size, and of another network as text.
    NetworkInNetwork,
    /// A tenth of the sizes of both texts or bytes; one for other types.
    Both,
    /// Size of the text times size of the pattern.
    Pattern,
    /// Size of one text times size of the other.
    TextInText,
    /// Every value inside the argument.
    Traversal,
    /// Every item of one list times every item of the other, times this factor.
    Sets(u64),
    /// Creation of a list of the result's size.
    ListResult,
    /// Creation of a list of the argument's size, for each level that is flattened.
    Flatten,
    /// Every item of the list at this index times every item.
    SelfCompare(usize),
    /// A tenth of the size of bytes; one for other types.
    Bytes,
    /// A tenth of the size of a string; one for other types.
    FromString,
    /// An access check, which the caller decides.
    AccessCheck,
    /// Creation of a list of requirements, by the second argument's size.
    Selector,
    /// Size of the text times size of the regular expression of a named format.
    Format,
}

/// One function of a library: name, signatures, cost and implementation.
pub(crate) struct Row(
    pub(crate) &'static str,
    /// `string|string->bool` is a member function of a string, `string,string->bool` is a global function. Capital
    /// letters are any types, `*` is any type that has an order.
    pub(crate) &'static [&'static str],
    pub(crate) Cost,
    pub(crate) Call,
);

/// Types with which a function can be called.
pub(crate) struct Signature {
    pub(crate) member: bool,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

/// A function with all its signatures.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) signatures: Vec<Signature>,
    pub(crate) cost: Cost,
    pub(crate) call: Call,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Types that have an order.
const COMPARABLE: [&str; 8] = ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];

/// Parses a signature of a row. A `*` stands for each comparable type, and makes one signature of each.
pub(crate) fn signatures_of(text: &str) -> Vec<Signature> {
    match text.contains('*') {
        true => COMPARABLE.iter().map(|of| signature(&text.replace('*', of))).collect(),
        false => vec![signature(text)],
    }
}

fn signature(text: &str) -> Signature {
    let (arguments, result) = text.split_once("->").unwrap_or((text, "dyn"));
    let (receiver, rest) = match arguments.split_once('|') {
        Some((receiver, rest)) => (Some(receiver), rest),
        None => (None, arguments),
    };
    let mut all: Vec<Type> = receiver.into_iter().map(Type::parse).collect();
    let (mut depth, mut start) = (0, 0);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                all.push(Type::parse(&rest[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    if !rest[start..].is_empty() {
        all.push(Type::parse(&rest[start..]));
    }
    Signature { member: receiver.is_some(), arguments: all, result: Type::parse(result) }
}

impl Function {
    /// Calls the function and pays for it: before the call if the price is known then.
    pub(crate) fn call<'a>(
        &self,
        arguments: &[Value<'a>],
        ambiguous: bool,
        meter: &Meter<'_>,
    ) -> Result<Value<'a>, Fault> {
        // Pay for reading the texts, whatever upstream charges.
        for argument in arguments {
            match argument {
                Value::String(text) => meter.read(text.as_str().len())?,
                Value::Bytes(bytes) => meter.read(bytes.len())?,
                _ => {}
            }
        }
        match self.cost {
            Cost::AccessCheck => meter.charge(ACCESS_CHECK_COST)?,
            _ => meter.pay(self.price(arguments, ambiguous, meter)?)?,
        }
        let result = (self.call)(arguments, meter);
        self.pay_for_result(result, meter)
    }

    /// Pays for a call with an argument that failed, and returns its error.
    pub(crate) fn fail<'a>(
        &self,
        arguments: &[Value<'a>],
        error: Fault,
        ambiguous: bool,
        meter: &Meter<'_>,
    ) -> Result<Value<'a>, Fault> {
        meter.pay(self.price(arguments, ambiguous, meter)?)?;
        self.pay_for_result(Err(error), meter)
    }

    /// Pays by the size of the result, which is one for an error.
    fn pay_for_result<'a>(&self, result: Result<Value<'a>, Fault>, meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
        let size = || match &result {
            Ok(value) => access::size(value, meter),
            Err(_) => Ok(1),
        };
        match self.cost {
            _ if matches!(result, Err(Fault::Stop(_))) => {}
            Cost::Result(factor) => meter.pay(scaled(size()?, factor))?,
            Cost::ListResult => meter.pay(size()?.saturating_add(LIST_CALL_COST))?,
            _ => {}
        }
        result
    }

    fn price(&self, arguments: &[Value<'_>], ambiguous: bool, meter: &Meter<'_>) -> Result<u64, Fault> {
        let size = |at: usize| arguments.get(at).map_or(Ok(1), |argument| access::size(argument, meter));
        let is_text = |at: usize| matches!(arguments.get(at), Some(Value::String(_) | Value::Bytes(_)));
        let is_string = |at: usize| matches!(arguments.get(at), Some(Value::String(_)));
        Ok(match self.cost {
            Cost::One => 1,
            // Upstream charges by the signature, which is known only if it is the only one that fits.
            Cost::InList | Cost::Ordered | Cost::Both | Cost::Bytes | Cost::SelfCompare(_) if ambiguous => 1,
            Cost::Result(_) | Cost::ListResult => 0,
            Cost::First(factor) => scaled(size(0)?, factor),
            Cost::Second(factor) => scaled(size(1)?, factor),
            Cost::InList => match arguments.get(1) {
                Some(list) => access::list_len(list, meter)?.unwrap_or(1) as u64,
                None => 1,
            },
            Cost::Equal if arguments.first().is_some_and(access::is_of_kubernetes) => 1,
            Cost::Equal | Cost::Smaller | Cost::Ordered => scaled(size(0)?.min(size(1)?), 0.1),
            Cost::InNetwork | Cost::NetworkInNetwork => {
                let bits = scaled(size(0)? * 2, 0.1);
                let more = if self.cost == Cost::InNetwork { 0 } else { scaled(size(0)?, 0.1) + 1 };
                let text = if is_string(1) && !ambiguous { scaled(size(1)?, 0.1) } else { 0 };
                bits + more + text
            }
            Cost::Both if is_text(0) || is_text(1) => scaled(size(0)? + size(1)?, 0.1),
            Cost::Both => 1,
            Cost::Pattern => scaled(size(0)? + 1, 0.1).saturating_mul(scaled(size(1)?, 0.25)),
            Cost::TextInText => scaled(size(0)?, 0.1).saturating_mul(scaled(size(1)?, 0.1)),
            Cost::Traversal => match arguments.first() {
                Some(value) => traversal(value, meter, 100)?,
                None => 0,
            },
            Cost::Sets(times) => size(0)?.saturating_mul(size(1)?).saturating_mul(times).saturating_add(1),
            Cost::Flatten => {
                let depth = match arguments.get(1) {
                    Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                    _ => 1,
                };
                size(0)?.saturating_mul(depth).saturating_add(LIST_CALL_COST)
            }
            Cost::SelfCompare(at) => {
                let len = size(at)?;
                let first = arguments.get(at).map_or(Ok(None), |list| access::list_item(list, 0, meter))?;
                let factor = if matches!(first, Some(Value::String(_) | Value::Bytes(_))) { 2.1 } else { 2.0 };
                (len.saturating_mul(len) as f64 * factor) as u64 + LIST_CALL_COST
            }
            Cost::Bytes if matches!(arguments.first(), Some(Value::Bytes(_))) => scaled(size(0)?, 0.1),
            Cost::FromString if is_string(0) && !ambiguous => scaled(size(0)?, 0.1),
            Cost::Bytes | Cost::FromString => 1,
            Cost::AccessCheck => ACCESS_CHECK_COST,
            Cost::Format => match arguments.first() {
                Some(Value::Format(format)) => {
                    scaled(size(1)? + 1, 0.1).saturating_mul(scaled(format.regex_size, 0.25))
                }
                _ => 1,
            },
            Cost::Selector => {
                let len = size(1)?;
                scaled(len, 0.1) + scaled(len, 0.5).saturating_mul(REQUIREMENT_COST) + LIST_CALL_COST - 1
            }
        })
    }
}

/// Cost of a call that creates a list.
const LIST_CALL_COST: u64 = 11;

/// Cost of an access check. The budget of an expression allows two.
const ACCESS_CHECK_COST: u64 = 350_000;

/// Cost of one requirement of a selector.
const REQUIREMENT_COST: u64 = 50;

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Returns the cost of all values inside a value. Source: `traversalCost` in `cost.go`.
fn traversal(value: &Value<'_>, meter: &Meter<'_>, deep: usize) -> Result<u64, Fault> {
    let Some(deep) = deep.checked_sub(1) else { return Err(Fault::error("the value is nested too deep")) };
    meter.step(1)?;
    Ok(match value {
        Value::String(text) => (text.as_str().len() as f64 * 0.1) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * 0.1) as u64,
        value => {
            if let Some(len) = access::list_len(value, meter)? {
                let mut sum = 0;
                for at in 0..len {
                    if let Some(item) = access::list_item(value, at, meter)? {
                        sum += traversal(&item, meter, deep)?;
                    }
                }
                sum
            } else if access::map_len(value, meter)?.is_some() {
                let mut sum = 0;
                for key in access::keys(value, meter)?.iter() {
                    sum += traversal(key, meter, deep)?;
                    if let Some(value) = access::entry(value, key, meter)? {
                        sum += traversal(&value, meter, deep)?;
                    }
                }
                sum
            } else {
                1
            }
        }
    })
}

/// Returns the error that no signature fits the arguments.
pub(crate) fn none<'a>() -> Result<Value<'a>, Fault> {
    Err(Fault::no_such_overload())
}

/// Returns the text of an argument; an error for any other value.
pub(crate) fn text<'v>(value: Option<&'v Value<'_>>) -> Result<&'v str, Fault> {
    match value {
        Some(Value::String(text)) => Ok(text.as_str()),
        _ => Err(Fault::no_such_overload()),
    }
}

/// Returns a part of a text. The part of a text of the input is not copied.
pub(crate) fn part<'a>(of: &Value<'a>, range: std::ops::Range<usize>, meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    match of {
        Value::String(Text::Lent(text)) => Ok(Value::String(Text::Lent(&text[range]))),
        Value::String(Text::Made(text)) => {
            meter.make(range.len())?;
            Ok(Value::made(&text[range]))
        }
        _ => none(),
    }
}
