//! Input: variables of an expression.

use std::{
    borrow::Cow,
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, RandomState},
    rc::Rc,
};

use gatepost_json as json;
use gatepost_json::ContainerEnds;

use crate::{
    authorization::{AccessDecisions, ResourceAccess},
    meter::{Fault, Meter},
};

/// Text that is lent by the expression or the input, or was made while evaluating.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Lent(&'a str),
    Made(Rc<str>),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Lent(text) => text,
            Self::Made(text) => text,
        }
    }
}

/// User who makes the request, beyond the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Identity among users of equal name.
    pub uid: String,
    /// Names of the user's groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator, ascending by key.
    pub extra: Vec<(String, Vec<String>)>,
}

/// The request, but for its objects. Texts that are empty count as not written, as upstream leaves them out.
pub struct Request<'a> {
    /// Group, version and kind of the object as it is written.
    pub kind: [&'a str; 3],
    /// Group, version and resource that the client asked for.
    pub resource: [&'a str; 3],
    /// Group, version and kind that the client asked for.
    pub request_kind: [&'a str; 3],
    /// The subresource.
    pub sub_resource: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Namespace of the request.
    pub namespace: &'a str,
    /// Operation on the object, in capitals.
    pub operation: &'a str,
    /// True when nothing will be stored.
    pub dry_run: bool,
    /// The acting user's name.
    pub username: &'a str,
    /// The operation's options.
    pub options: Option<JsonDocument<'a>>,
    /// Bytes of the user as the review has it, for the time it takes to read.
    pub user_bytes: usize,
    user: OnceCell<Result<User, String>>,
    read_user: Box<dyn Fn() -> Result<User, String> + 'a>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// A request of which nothing is known but how to read its user, which is done when an expression asks.
    pub fn new(read_user: impl Fn() -> Result<User, String> + 'a) -> Self {
        let (kind, resource, request_kind) = ([""; 3], [""; 3], [""; 3]);
        let (sub_resource, name, namespace, operation, username) = ("", "", "", "", "");
        let (user, read_user, options, dry_run) = (OnceCell::new(), Box::new(read_user), None, false);
        Self {
            kind,
            resource,
            request_kind,
            sub_resource,
            name,
            namespace,
            operation,
            dry_run,
            username,
            options,
            user_bytes: 0,
            user,
            read_user,
        }
    }

    /// The object that it is about, as an access check names it.
    pub(super) fn access(&self) -> ResourceAccess {
        let [group, _, resource] = self.resource;
        ResourceAccess {
            group: group.into(),
            resource: resource.into(),
            sub_resource: self.sub_resource.into(),
            namespace: self.namespace.into(),
            name: self.name.into(),
            ..ResourceAccess::default()
        }
    }

    /// The user, read when it is first asked for.
    pub(super) fn user(&self, meter: &Meter<'_>) -> Result<&User, Fault> {
        if self.user.get().is_none() {
            meter.read(self.user_bytes)?;
        }
        self.user.get_or_init(|| (self.read_user)()).as_ref().map_err(|why| Fault::error(why.clone()))
    }
}

/// Variables of one review.
#[derive(Debug)]
pub struct Input<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The object, where there is one.
    pub object: Option<JsonDocument<'a>>,
    /// The stored object, where there is one.
    pub old_object: Option<JsonDocument<'a>>,
    /// Access checks that were decided.
    pub decisions: AccessDecisions,
}

/// A part of the request that has fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Request,
    Kind,
    RequestKind,
    Resource,
    UserInfo,
    Extra,
}

// Document: an object's JSON, of which only what an expression looks into is ever located.

/// First bytes of an object in Kubernetes' protobuf envelope.
const ENVELOPE: &[u8] = b"k8s\0";

/// Keys of an object beyond which they are found by hash.
const FEW: usize = 12;

/// Bytes of a string beyond which it is remembered where it ends, and beyond which numbers and keys are paid for by their
/// length. A shorter one is as soon read again.
const LONG: usize = 64;

/// One JSON object, in the bytes it arrived in.
pub struct JsonDocument<'a> {
    text: Result<Cow<'a, str>, &'static str>,
    /// Offset of the outermost value.
    begin: usize,
    /// Containers located so far, by the offset of each.
    indexes: RefCell<BTreeMap<u32, Rc<Index>>>,
    /// It is known to be JSON, all of it.
    checked: bool,
    /// Ends of its larger containers, once something in it is looked for; or the reason why it is no JSON.
    ends: OnceCell<Result<json::Ends, json::JsonError>>,
    /// Long strings that were read, by where they begin: none is read twice.
    strings: RefCell<BTreeMap<u32, ReadString>>,
}

/// One string of a document that was read.
enum ReadString {
    /// It has no escapes, and ends there.
    Plain(u32),
    /// As it is without its escapes.
    Unescaped(Rc<str>),
}

/// Offsets of the values of one container.
#[derive(Debug)]
pub(super) enum Index {
    List(Vec<u32>),
    /// Of equal keys the last one counts, as in Go's decoder.
    Map(Members),
}

/// The members of one object.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Offsets of key and value.
    pub(super) places: Vec<(u32, u32)>,
    /// Where there are many: the number of each and 1, at the first free slot from that of its key's hash on. Twice as many
    /// slots as members at least, so that some are free, and free ones are 0.
    slots: Vec<u32>,
    /// Keyed anew for each, so that nobody can choose keys which are found slowly.
    hasher: Option<RandomState>,
}

/// One value of a document. A container is read where an expression looks into it.
#[derive(Clone, Debug)]
pub(super) enum DocumentValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    String(Text<'a>),
    Container(Container<'a>),
}

/// A list or map in a document.
#[derive(Clone, Copy)]
pub(super) struct Container<'a> {
    document: &'a JsonDocument<'a>,
    at: u32,
}

impl fmt::Debug for Container<'_> {
    /// Never shows what is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Container({})", self.at)
    }
}

impl fmt::Debug for JsonDocument<'_> {
    /// Never shows what is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.text.as_deref().map_or(0, str::len))
    }
}

impl<'a> JsonDocument<'a> {
    /// A document that nothing was looked up in yet. Takes the time of one look at each byte.
    pub fn new(bytes: Cow<'a, [u8]>) -> Self {
        let text = if bytes.starts_with(ENVELOPE) {
            Err("the object is written in protobuf, and can only be read in JSON")
        } else if u32::try_from(bytes.len()).is_err() {
            Err("the object is larger than 4 GiB")
        } else {
            // Invalid UTF-8 becomes U+FFFD, as in Go's decoder. Whether there is any is seen much faster than where.
            Ok(match bytes {
                Cow::Borrowed(bytes) => {
                    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
                }
                Cow::Owned(bytes) => match String::from_utf8(bytes) {
                    Ok(text) => text.into(),
                    Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned().into(),
                },
            })
        };
        let blanks = |text: &str| text.bytes().take_while(|byte| b" \t\r\n".contains(byte)).count();
        let begin = text.as_deref().map_or(0, blanks);
        let (indexes, strings) = (RefCell::default(), RefCell::default());
        Self { text, begin, indexes, checked: false, ends: OnceCell::new(), strings }
    }

    /// The same of what is known to be JSON: it is not checked once more.
    pub fn checked(bytes: Cow<'a, [u8]>) -> Self {
        Self { checked: true, ..Self::new(bytes) }
    }

    /// The same of which the ends of large containers were noted when it was checked, counted from its first byte: what is
    /// large and not looked into is not looked at either.
    pub fn recorded(bytes: Cow<'a, [u8]>, ends: ContainerEnds) -> Self {
        Self { ends: Ok(json::Ends::recorded(ends)).into(), ..Self::checked(bytes) }
    }

    /// Ends of its larger containers. One pass, which also checks what is not known to be JSON.
    fn ends(&self, text: &str) -> Result<&json::Ends, json::JsonError> {
        let found = || match self.checked {
            true => json::Ends::of(text, self.begin),
            false => json::Ends::checking(text, self.begin),
        };
        self.ends.get_or_init(found).as_ref().map_err(|error| *error)
    }

    /// Number of containers looked into.
    #[cfg(test)]
    pub(super) fn located_containers(&self) -> usize {
        self.indexes.borrow().len()
    }

    fn text(&self) -> Result<&str, Fault> {
        self.text.as_deref().map_err(|why| Fault::error(*why))
    }

    /// The object itself.
    pub(super) fn root(&'a self, meter: &Meter<'_>) -> Result<DocumentValue<'a>, Fault> {
        self.value(self.text()?, self.begin, meter)
    }

    fn value(&'a self, text: &'a str, at: usize, meter: &Meter<'_>) -> Result<DocumentValue<'a>, Fault> {
        let value = match text.as_bytes().get(at) {
            // It fits: the text is shorter than that.
            Some(b'{' | b'[') => DocumentValue::Container(Container { document: self, at: at as u32 }),
            Some(b'"') => DocumentValue::String(self.string(text, at, meter)?),
            _ => match json::scalar(text, at).map_err(|error| not_json(&error))? {
                "null" => DocumentValue::Null,
                "true" => DocumentValue::Bool(true),
                "false" => DocumentValue::Bool(false),
                number => {
                    if number.len() > LONG {
                        meter.read(number.len())?;
                    }
                    let whole = number.parse().map(DocumentValue::Int);
                    let read = whole.or_else(|_| number.parse().map(DocumentValue::Double));
                    read.map_err(|_| Fault::error("the object holds a number that is none"))?
                }
            },
        };
        Ok(value)
    }

    /// The string that begins there. Paid for by its length when it is first read.
    fn string(&'a self, text: &'a str, at: usize, meter: &Meter<'_>) -> Result<Text<'a>, Fault> {
        match self.strings.borrow().get(&(at as u32)) {
            Some(ReadString::Plain(end)) => return Ok(Text::Lent(&text[at + 1..*end as usize])),
            Some(ReadString::Unescaped(text)) => return Ok(Text::Made(Rc::clone(text))),
            None => {}
        }
        let (read, found) = match json::string(text, at).map_err(|error| not_json(&error))? {
            Cow::Borrowed(text) => (ReadString::Plain((at + 1 + text.len()) as u32), Text::Lent(text)),
            Cow::Owned(text) => {
                let text: Rc<str> = text.into();
                (ReadString::Unescaped(Rc::clone(&text)), Text::Made(text))
            }
        };
        let len = found.as_str().len();
        meter.read(len)?;
        if len > LONG {
            self.strings.borrow_mut().insert(at as u32, read);
        }
        Ok(found)
    }
}

fn not_json(error: &json::JsonError) -> Fault {
    Fault::error(format!("the object is not JSON at {error}"))
}

impl<'a> Container<'a> {
    fn text(self) -> Result<&'a str, Fault> {
        self.document.text()
    }

    pub(super) fn is_list(self) -> bool {
        let text = self.document.text.as_deref();
        text.is_ok_and(|text| text.as_bytes().get(self.at as usize) == Some(&b'['))
    }

    /// Offsets of the values in it; located when first asked for.
    pub(super) fn index(self, meter: &Meter<'_>) -> Result<Rc<Index>, Fault> {
        if let Some(index) = self.document.indexes.borrow().get(&self.at) {
            return Ok(Rc::clone(index));
        }
        let text = self.text()?;
        let (index, end) = self.located(text).map_err(|error| not_json(&error))?;
        // All of it was passed by, byte for byte.
        meter.read(end - self.at as usize)?;
        let index = Rc::new(index);
        self.document.indexes.borrow_mut().insert(self.at, Rc::clone(&index));
        Ok(index)
    }

    /// Offsets of the values in it, and its end.
    fn located(self, text: &'a str) -> Result<(Index, usize), json::JsonError> {
        let (at, ends) = (self.at as usize, self.document.ends(text)?);
        if self.is_list() {
            let mut places = Vec::new();
            let end = ends.items(text, at, |at| places.push(at as u32))?;
            return Ok((Index::List(places), end));
        }
        let mut members = Members::default();
        let end = ends.members(text, at, |key_at, key, at| members.add(text, (key_at as u32, at as u32), &key))?;
        Ok((Index::Map(members), end))
    }

    /// The value that begins at one of its places.
    pub(super) fn at(self, place: u32, meter: &Meter<'_>) -> Result<DocumentValue<'a>, Fault> {
        self.document.value(self.text()?, place as usize, meter)
    }

    /// Key at one of its places.
    pub(super) fn key_at(self, place: u32, meter: &Meter<'_>) -> Result<Text<'a>, Fault> {
        match self.at(place, meter)? {
            DocumentValue::String(text) => Ok(text),
            _ => Err(Fault::error("the object has a key that is none")),
        }
    }

    /// The member of this name.
    pub(super) fn member(self, key: &str, meter: &Meter<'_>) -> Result<Option<DocumentValue<'a>>, Fault> {
        if key.len() > LONG {
            meter.read(key.len())?;
        }
        match &*self.index(meter)? {
            Index::List(_) => Ok(None),
            Index::Map(members) => {
                let text = self.text()?;
                members.find(text, key).map(|at| self.at(at, meter)).transpose()
            }
        }
    }
}

impl Members {
    fn add(&mut self, text: &str, place: (u32, u32), key: &str) {
        match self.number_of(text, key) {
            Some(number) => self.places[number] = place,
            None => {
                self.places.push(place);
                let many = self.places.len();
                if many >= FEW && 2 * many > self.slots.len() {
                    self.slots = vec![0; (4 * many).next_power_of_two()];
                    for number in 0..many {
                        let key = json::string(text, self.places[number].0 as usize).unwrap_or_default();
                        self.note(&key, number);
                    }
                } else if many >= FEW {
                    self.note(key, many - 1);
                }
            }
        }
    }

    /// Notes where a member is found that was not.
    fn note(&mut self, key: &str, number: usize) {
        let mut slot = self.slot(key);
        while self.slots[slot] != 0 {
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = number as u32 + 1;
    }

    fn slot(&mut self, key: &str) -> usize {
        let hasher = self.hasher.get_or_insert_with(RandomState::new);
        hasher.hash_one(key) as usize % self.slots.len()
    }

    fn number_of(&self, text: &str, key: &str) -> Option<usize> {
        let Some(hasher) = &self.hasher else {
            return self.places.iter().position(|(at, _)| is_key(text, *at as usize, key));
        };
        let mut slot = hasher.hash_one(key) as usize % self.slots.len();
        loop {
            let number = self.slots[slot].checked_sub(1)? as usize;
            if is_key(text, self.places[number].0 as usize, key) {
                return Some(number);
            }
            slot = (slot + 1) % self.slots.len();
        }
    }

    fn find(&self, text: &str, key: &str) -> Option<u32> {
        self.number_of(text, key).map(|number| self.places[number].1)
    }
}

/// Does the string that has begun end in these bytes?
fn ends_within(raw: &[u8]) -> bool {
    let mut escaped = false;
    raw.iter().any(|byte| {
        let ends = !escaped && *byte == b'"';
        escaped = !escaped && *byte == b'\\';
        ends
    })
}

/// Does this key stand at `at`?
fn is_key(text: &str, at: usize, key: &str) -> bool {
    let rest = &text.as_bytes()[at + 1..];
    if rest.starts_with(key.as_bytes()) && rest.get(key.len()) == Some(&b'"') && !key.contains('\\') {
        return true;
    }
    // Escaped, or another one. No byte of a key takes more than six where it is escaped: what is longer is another one,
    // and is not read to its end.
    let longest = key.len().saturating_mul(6) + 1;
    let raw = &rest[..rest.len().min(longest)];
    raw.iter().take_while(|byte| **byte != b'"').any(|byte| *byte == b'\\')
        && ends_within(raw)
        && json::string(text, at).is_ok_and(|found| found == key)
}
