//! Values of expressions, which may borrow from the input.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::HashMap,
    net::IpAddr,
    ops::{Deref, DerefMut},
    rc::Rc,
};

use crate::{
    authorization::{AccessDecision, Authorizer},
    formats::Format,
    input::{Container, DocumentValue, Part, Request, Text},
    meter::{Fault, ITEMS_PER_ENTRY, MAX_HELD_ITEMS, Meter, Room},
    numbers::{Quantity, Semver},
    time::{Duration, Timestamp},
    types::{JSON_PATCH_NAME, OBJECT_NAME},
    url::Url,
};

/// A literal value of an expression.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Box<[u8]>),
    Duration(Duration),
    Timestamp(Timestamp),
    List(Box<[Literal]>),
    Map(Box<[(Literal, Literal)]>),
    /// The name of a type.
    Type(&'static str),
}

impl Literal {
    /// Returns the number of entries, including those of maps within maps.
    fn entries(&self) -> usize {
        match self {
            Self::Map(entries) => entries.iter().map(|(key, value)| 1 + key.entries() + value.entries()).sum(),
            _ => 0,
        }
    }

    /// Returns true if upstream finds the value by its hash.
    pub(super) const fn is_primitive(&self) -> bool {
        matches!(self, Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::Double(_) | Self::String(_))
    }
}

/// A value. Containers of a document are located when an expression reads them.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Rc<[u8]>),
    Duration(Duration),
    Timestamp(Timestamp),
    List(Rc<List<'a>>),
    Map(Rc<Map<'a>>),
    /// A list or map of a document.
    Json(Container<'a>),
    /// A list of an expression's literals.
    Literals(&'a [Literal]),
    /// Strings of the request.
    Strings(&'a [String]),
    /// A part of the request that has fields.
    Struct(Part, &'a Request<'a>),
    Optional(Option<Rc<Value<'a>>>),
    Quantity(Rc<Quantity>),
    Url(Rc<Url>),
    Semver(Rc<Semver>),
    Format(&'static Format),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    /// A partial access check.
    Authorizer(Rc<Authorizer<'a>>),
    /// The decision of an access check.
    Decision(&'a AccessDecision),
    Message(Rc<Message<'a>>),
    Type(&'static str),
    /// An error as the accumulator of a loop, since the next round might not need it.
    Failed(Rc<Cow<'static, str>>),
    /// What a macro binds to a name that was not used yet. The evaluation knows the node.
    Pending,
}

const _: () = assert!(MAX_HELD_ITEMS * size_of::<Value<'static>>() <= 32 << 20, "the bound on lists is told in bytes");

/// A list that the evaluation created. Derefs to its items.
#[derive(Clone, Debug)]
pub(super) struct List<'a> {
    items: Vec<Value<'a>>,
    room: Room,
    /// True if it is the sum of two lists, whose items upstream converts differently.
    is_joined: bool,
}

impl<'a> List<'a> {
    /// Returns an empty list that holds `capacity` items without reallocation.
    pub(super) fn with_room(room: Room, capacity: usize) -> Self {
        Self { items: Vec::with_capacity(capacity), room, is_joined: false }
    }

    /// Marks the list as the sum of two lists.
    pub(super) fn joined(self) -> Self {
        Self { is_joined: true, ..self }
    }

    /// Returns true if it is the sum of two lists.
    pub(super) const fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// Appends an item whose room is reserved.
    pub(super) fn fill(&mut self, item: Value<'a>) {
        self.items.push(item);
    }

    /// Appends an item, and reserves its room.
    pub(super) fn push(&mut self, item: Value<'a>, meter: &Meter<'_>) -> Result<(), Fault> {
        self.room.grow(1, meter)?;
        self.items.push(item);
        Ok(())
    }

    /// Appends the items of another list, and reserves their room.
    pub(super) fn append(&mut self, mut more: List<'a>, meter: &Meter<'_>) -> Result<(), Fault> {
        self.room.grow(more.items.len(), meter)?;
        self.items.append(&mut more.items);
        Ok(())
    }

    /// Returns the items and their room.
    pub(super) fn into_parts(self) -> (Vec<Value<'a>>, Room) {
        (self.items, self.room)
    }
}

impl<'a> Deref for List<'a> {
    type Target = [Value<'a>];

    fn deref(&self) -> &[Value<'a>] {
        &self.items
    }
}

impl DerefMut for List<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.items
    }
}

/// A message that the evaluation created: an `Object`, or one operation of a JSON patch.
#[derive(Clone, Debug)]
pub(super) struct Message<'a> {
    pub(super) name: &'a str,
    /// Fields by name, each once.
    pub(super) fields: Vec<(&'a str, Value<'a>)>,
    /// Room of the fields, held as long as they are.
    _room: Room,
}

impl<'a> Message<'a> {
    /// Creates a message of this name.
    pub(super) const fn new(name: &'a str, fields: Vec<(&'a str, Value<'a>)>, room: Room) -> Self {
        Self { name, fields, _room: room }
    }

    /// Returns true if this is one operation of a JSON patch, and no object.
    pub(super) fn is_json_patch(&self) -> bool {
        self.name == JSON_PATCH_NAME
    }

    pub(super) fn field(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns true if a field is set. As in upstream, an empty text field of a JSON patch is not.
    pub(super) fn has(&self, name: &str) -> bool {
        self.field(name).is_some() && (!self.is_json_patch() || name == "value" || !self.text(name).is_empty())
    }

    /// Returns a text field of a JSON patch, which is empty if it is not set.
    pub(super) fn text(&self, name: &str) -> &str {
        match self.field(name) {
            Some(Value::String(text)) => text.as_str(),
            _ => "",
        }
    }
}

/// A map that the evaluation created.
#[derive(Clone, Debug, Default)]
pub(super) struct Map<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    places: HashMap<Key, usize>,
    room: Room,
}

/// Key of a map. Equal numbers are one key, whatever their type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Number(i128),
    String(Rc<str>),
}

impl Key {
    fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(yes) => Self::Bool(*yes),
            Value::Int(number) => Self::Number((*number).into()),
            Value::Uint(number) => Self::Number((*number).into()),
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e19 => Self::Number(*number as i128),
            Value::String(text) => Self::String(text.as_str().into()),
            _ => return None,
        })
    }
}

impl<'a> Map<'a> {
    /// Reserves room for this many more entries.
    pub(super) fn reserve(&mut self, entries: usize, meter: &Meter<'_>) -> Result<(), Fault> {
        self.room.grow(entries.saturating_mul(ITEMS_PER_ENTRY), meter)
    }

    fn of(literals: &'a [(Literal, Literal)]) -> Self {
        let mut map = Map::default();
        for (key, value) in literals {
            map.set(key.into(), value.into());
        }
        map
    }

    /// Adds an entry, or replaces its value. Returns false if the value cannot be a key.
    pub(super) fn set(&mut self, key: Value<'a>, value: Value<'a>) -> bool {
        match Key::of(&key).and_then(|place| self.places.get(&place)) {
            Some(place) => {
                self.entries[*place].1 = value;
                true
            }
            None => self.insert(key, value),
        }
    }

    /// Adds an entry. Returns false if the key exists, or if the value cannot be a key.
    pub(super) fn insert(&mut self, key: Value<'a>, value: Value<'a>) -> bool {
        let Some(place) = Key::of(&key).filter(|_| !matches!(key, Value::Double(_))) else { return false };
        if self.places.contains_key(&place) {
            return false;
        }
        self.places.insert(place, self.entries.len());
        self.entries.push((key, value));
        true
    }

    pub(super) fn get(&self, key: &Value<'a>) -> Option<&Value<'a>> {
        self.places.get(&Key::of(key)?).map(|place| &self.entries[*place].1)
    }

    pub(super) fn entries(&self) -> &[(Value<'a>, Value<'a>)] {
        &self.entries
    }
}

impl<'a> Value<'a> {
    /// Returns a literal's value. A map is created on each call, and paid for.
    pub(super) fn of(literal: &'a Literal, meter: &Meter<'_>) -> Result<Self, Fault> {
        let Literal::Map(entries) = literal else { return Ok(literal.into()) };
        let room = meter.list(literal.entries().saturating_mul(ITEMS_PER_ENTRY))?;
        Ok(Self::Map(Rc::new(Map { room, ..Map::of(entries) })))
    }
}

impl<'a> From<&'a Literal> for Value<'a> {
    fn from(literal: &'a Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(yes) => Self::Bool(*yes),
            Literal::Int(number) => Self::Int(*number),
            Literal::Uint(number) => Self::Uint(*number),
            Literal::Double(number) => Self::Double(*number),
            Literal::String(text) => Self::String(Text::Lent(text)),
            Literal::Bytes(bytes) => Self::Bytes(bytes.as_ref().into()),
            Literal::Duration(span) => Self::Duration(*span),
            Literal::Timestamp(time) => Self::Timestamp(*time),
            Literal::Type(name) => Self::Type(name),
            Literal::List(items) => Self::Literals(items),
            Literal::Map(entries) => Self::Map(Rc::new(Map::of(entries))),
        }
    }
}

impl<'a> From<DocumentValue<'a>> for Value<'a> {
    #[inline]
    fn from(value: DocumentValue<'a>) -> Self {
        match value {
            DocumentValue::Null => Self::Null,
            DocumentValue::Bool(yes) => Self::Bool(yes),
            DocumentValue::Int(number) => Self::Int(number),
            DocumentValue::Double(number) => Self::Double(number),
            DocumentValue::String(text) => Self::String(text),
            DocumentValue::Container(container) => Self::Json(container),
        }
    }
}

impl<'a> Value<'a> {
    /// Returns text that the evaluation created.
    pub(super) fn made(text: impl Into<Rc<str>>) -> Self {
        Self::String(Text::Made(text.into()))
    }

    /// Returns borrowed text.
    pub(super) const fn lent(text: &'a str) -> Self {
        Self::String(Text::Lent(text))
    }

    pub(super) fn list(items: Vec<Value<'a>>, room: Room) -> Self {
        Self::List(Rc::new(List { items, room, is_joined: false }))
    }

    pub(super) fn optional(value: Option<Value<'a>>) -> Self {
        Self::Optional(value.map(Rc::new))
    }

    /// Returns the name of the type, as in `type(…)` and messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) | Self::Literals(_) | Self::Strings(_) => "list",
            Self::Map(_) | Self::Struct(..) => "map",
            Self::Json(node) if node.is_list() => "list",
            Self::Json(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Authorizer(authorizer) => authorizer.type_name(),
            Self::Decision(_) => "kubernetes.authorization.Decision",
            Self::Message(message) if message.is_json_patch() => JSON_PATCH_NAME,
            Self::Message(_) => OBJECT_NAME,
            Self::Type(_) => "type",
            Self::Failed(_) | Self::Pending => "error",
        }
    }

    /// Returns the name that Go gives to the type of the value, as messages of upstream show it.
    pub(super) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "structpb.NullValue",
            Self::Int(_) => "int64",
            Self::Uint(_) => "uint64",
            Self::Double(_) => "float64",
            Self::Bytes(_) => "[]uint8",
            Self::Duration(_) => "time.Duration",
            Self::Timestamp(_) => "time.Time",
            Self::List(_) | Self::Literals(_) => "[]ref.Val",
            Self::Json(node) if node.is_list() => "[]interface {}",
            Self::Json(_) => "map[string]interface {}",
            Self::Strings(_) => "[]string",
            Self::Map(_) => "map[ref.Val]ref.Val",
            other => other.type_name(),
        }
    }

    /// Compares numbers, strings, bytes, booleans and times; `None` if the values have no order.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Some(a.as_str().cmp(b.as_str())),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            _ => compare_numbers(self, other),
        }
    }
}

/// Compares numbers of any two types.
pub(super) fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => compare_with_whole(*a, whole(b)?),
        (a, Value::Double(b)) => compare_with_whole(*b, whole(a)?).map(Ordering::reverse),
        (a, b) => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

fn whole(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::Uint(number) => Some((*number).into()),
        _ => None,
    }
}

/// Compares as cel-go does: converts the whole number to a double.
fn compare_with_whole(double: f64, whole: i128) -> Option<Ordering> {
    double.partial_cmp(&(whole as f64))
}
