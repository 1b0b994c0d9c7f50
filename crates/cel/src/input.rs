//! The variables of an expression: the request, and objects as JSON text. Only containers that an expression reads are
//! located.

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

/// Text that is borrowed from the expression or the input, or was created by the evaluation.
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

/// The user who makes the request, except for the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The identity among users of equal name.
    pub uid: String,
    /// The names of the user's groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator, ascending by key.
    pub extra: Vec<(String, Vec<String>)>,
}

/// The request, except for its objects. Empty texts count as absent, because upstream omits them.
pub struct Request<'a> {
    /// Group, version and kind of the object as it is sent.
    pub kind: [&'a str; 3],
    /// Group, version and resource that the client asked for.
    pub resource: [&'a str; 3],
    /// Group, version and kind that the client asked for.
    pub request_kind: [&'a str; 3],
    /// The subresource.
    pub sub_resource: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The namespace of the request.
    pub namespace: &'a str,
    /// The operation on the object, in capitals.
    pub operation: &'a str,
    /// True if nothing will be stored.
    pub dry_run: bool,
    /// The name of the user.
    pub username: &'a str,
    /// The options of the operation.
    pub options: Option<JsonDocument<'a>>,
    /// The length of the encoded user, which counts as read on the first use of the user.
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
    /// Creates an empty request. `read_user` is called when an expression first uses the user beyond the name.
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

    /// Returns the resource that the request is about, as an access check names it.
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

    /// Returns the user, which is read on first use.
    pub(super) fn user(&self, meter: &Meter<'_>) -> Result<&User, Fault> {
        if self.user.get().is_none() {
            meter.read(self.user_bytes)?;
        }
        self.user.get_or_init(|| (self.read_user)()).as_ref().map_err(|why| Fault::error(why.clone()))
    }
}

/// The variables of one evaluation.
#[derive(Debug)]
pub struct Input<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The object, if there is one.
    pub object: Option<JsonDocument<'a>>,
    /// The stored object, if there is one.
    pub old_object: Option<JsonDocument<'a>>,
    /// The namespace of the request, with the fields that upstream shows; `None` for requests without one, and in
    /// conditions of webhooks.
    pub namespace: Option<JsonDocument<'a>>,
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

/// The first bytes of an object in Kubernetes' protobuf envelope.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

/// Minimum number of keys of an object whose keys are found by hash.
const MIN_HASHED_KEYS: usize = 12;

/// Maximum length of a string whose end is not cached, and of a number or key that does not count as read. Reading
/// shorter ones again is cheap.
const MAX_FREE_BYTES: usize = 64;

/// One JSON object in the bytes in which it arrived.
pub struct JsonDocument<'a> {
    text: Result<Cow<'a, str>, &'static str>,
    /// The offset of the outermost value.
    begin: usize,
    /// The containers located so far, by their offsets.
    indexes: RefCell<BTreeMap<u32, Rc<Index>>>,
    /// True if all of it is known to be JSON.
    checked: bool,
    /// The ends of its larger containers, found on first use; or the reason why it is not JSON.
    ends: OnceCell<Result<json::Ends, json::JsonError>>,
    /// Long strings that were read, by their offsets, so that none is read twice.
    strings: RefCell<BTreeMap<u32, ReadString>>,
}

/// A string of a document that was read.
enum ReadString {
    /// A string without escapes, with its end.
    Plain(u32),
    /// A string with its escapes replaced.
    Unescaped(Rc<str>),
}

/// The offsets of the values of one container.
#[derive(Debug)]
pub(super) enum Index {
    List(Vec<u32>),
    /// An object. The last of equal keys counts, as in Go's decoder.
    Map(Members),
}

/// The members of one object.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The offsets of key and value.
    pub(super) places: Vec<(u32, u32)>,
    /// A hash table of many members with linear probing: the index of each plus 1; free slots are 0. At least twice as
    /// many slots as members.
    slots: Vec<u32>,
    /// Keyed for each object, so that nobody can choose keys that collide.
    hasher: Option<RandomState>,
}

/// One value of a document. Containers are located when an expression reads them.
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
    /// Never shows the contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Container({})", self.at)
    }
}

impl fmt::Debug for JsonDocument<'_> {
    /// Never shows the contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.text.as_deref().map_or(0, str::len))
    }
}

impl<'a> JsonDocument<'a> {
    /// Creates a document from bytes that are not known to be JSON. Reads each byte once to check that they are UTF-8.
    pub fn new(bytes: Cow<'a, [u8]>) -> Self {
        let text = if bytes.starts_with(PROTOBUF_MAGIC) {
            Err("the object is written in protobuf, and can only be read in JSON")
        } else if u32::try_from(bytes.len()).is_err() {
            Err("the object is larger than 4 GiB")
        } else {
            // Invalid UTF-8 becomes U+FFFD, as in Go's decoder. Validation alone is much faster than replacement.
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

    /// As [`JsonDocument::new`], for bytes that are known to be JSON and are not checked again.
    pub fn checked(bytes: Cow<'a, [u8]>) -> Self {
        Self { checked: true, ..Self::new(bytes) }
    }

    /// As [`JsonDocument::checked`], with the ends of large containers, relative to the first byte, that were recorded
    /// when the bytes were checked. Large containers that no expression uses are then not read at all.
    pub fn recorded(bytes: Cow<'a, [u8]>, ends: ContainerEnds) -> Self {
        Self { ends: Ok(json::Ends::recorded(ends)).into(), ..Self::checked(bytes) }
    }

    /// Returns the ends of its larger containers, in one pass, which also checks what is not known to be JSON.
    fn ends(&self, text: &str) -> Result<&json::Ends, json::JsonError> {
        let found = || match self.checked {
            true => json::Ends::of(text, self.begin),
            false => json::Ends::checking(text, self.begin),
        };
        self.ends.get_or_init(found).as_ref().map_err(|error| *error)
    }

    /// Returns the number of located containers.
    #[cfg(test)]
    pub(super) fn located_containers(&self) -> usize {
        self.indexes.borrow().len()
    }

    fn text(&self) -> Result<&str, Fault> {
        self.text.as_deref().map_err(|why| Fault::error(*why))
    }

    /// Returns the object itself.
    pub(super) fn root(&'a self, meter: &Meter<'_>) -> Result<DocumentValue<'a>, Fault> {
        self.value(self.text()?, self.begin, meter)
    }

    fn value(&'a self, text: &'a str, at: usize, meter: &Meter<'_>) -> Result<DocumentValue<'a>, Fault> {
        let value = match text.as_bytes().get(at) {
            // The offset fits: texts are shorter than 4 GiB.
            Some(b'{' | b'[') => DocumentValue::Container(Container { document: self, at: at as u32 }),
            Some(b'"') => DocumentValue::String(self.string(text, at, meter)?),
            _ => match json::scalar(text, at).map_err(|error| not_json(&error))? {
                "null" => DocumentValue::Null,
                "true" => DocumentValue::Bool(true),
                "false" => DocumentValue::Bool(false),
                number => {
                    if number.len() > MAX_FREE_BYTES {
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

    /// Returns the string at `at`. Its length is counted when it is first read.
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
        if len > MAX_FREE_BYTES {
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

    /// Returns true if this is a part of the document.
    pub(super) fn is_of(self, document: &JsonDocument<'_>) -> bool {
        std::ptr::from_ref(self.document).cast::<()>() == std::ptr::from_ref(document).cast()
    }

    pub(super) fn is_list(self) -> bool {
        let text = self.document.text.as_deref();
        text.is_ok_and(|text| text.as_bytes().get(self.at as usize) == Some(&b'['))
    }

    /// Returns the offsets of the values in it, which are located on first use.
    pub(super) fn index(self, meter: &Meter<'_>) -> Result<Rc<Index>, Fault> {
        if let Some(index) = self.document.indexes.borrow().get(&self.at) {
            return Ok(Rc::clone(index));
        }
        let text = self.text()?;
        let (index, end) = self.located(text).map_err(|error| not_json(&error))?;
        // All of its bytes were read.
        meter.read(end - self.at as usize)?;
        let index = Rc::new(index);
        self.document.indexes.borrow_mut().insert(self.at, Rc::clone(&index));
        Ok(index)
    }

    /// Locates the values in it. Returns their offsets and its end.
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

    /// Returns the value at one of its offsets.
    pub(super) fn at(self, place: u32, meter: &Meter<'_>) -> Result<DocumentValue<'a>, Fault> {
        self.document.value(self.text()?, place as usize, meter)
    }

    /// Returns the key at one of its offsets.
    pub(super) fn key_at(self, place: u32, meter: &Meter<'_>) -> Result<Text<'a>, Fault> {
        match self.at(place, meter)? {
            DocumentValue::String(text) => Ok(text),
            _ => Err(Fault::error("the object has a key that is none")),
        }
    }

    /// Returns the member of this name.
    pub(super) fn member(self, key: &str, meter: &Meter<'_>) -> Result<Option<DocumentValue<'a>>, Fault> {
        if key.len() > MAX_FREE_BYTES {
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
                if many >= MIN_HASHED_KEYS && 2 * many > self.slots.len() {
                    self.slots = vec![0; (4 * many).next_power_of_two()];
                    for number in 0..many {
                        let key = json::string(text, self.places[number].0 as usize).unwrap_or_default();
                        self.add_to_slots(&key, number);
                    }
                } else if many >= MIN_HASHED_KEYS {
                    self.add_to_slots(key, many - 1);
                }
            }
        }
    }

    /// Adds a new member to the hash table.
    fn add_to_slots(&mut self, key: &str, number: usize) {
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

/// Returns true if the string that has begun ends in these bytes.
fn ends_within(raw: &[u8]) -> bool {
    let mut escaped = false;
    raw.iter().any(|byte| {
        let ends = !escaped && *byte == b'"';
        escaped = !escaped && *byte == b'\\';
        ends
    })
}

/// Returns true if the key at `at` is this one.
fn is_key(text: &str, at: usize, key: &str) -> bool {
    let rest = &text.as_bytes()[at + 1..];
    if rest.starts_with(key.as_bytes()) && rest.get(key.len()) == Some(&b'"') && !key.contains('\\') {
        return true;
    }
    // The key is escaped or not equal. An escaped byte takes at most six bytes: a longer key is not equal, and is not
    // read to its end.
    let longest = key.len().saturating_mul(6) + 1;
    let raw = &rest[..rest.len().min(longest)];
    raw.iter().take_while(|byte| **byte != b'"').any(|byte| *byte == b'\\')
        && ends_within(raw)
        && json::string(text, at).is_ok_and(|found| found == key)
}
