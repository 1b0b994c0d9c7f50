//! The variables of an expression: the request, and objects as JSON text. Only containers that an expression reads are
//! located.

use std::{
    borrow::Cow,
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    fmt,
    rc::Rc,
};

use gatepost_json as json;
use gatepost_json::ContainerEnds;

use crate::{
    authorization::{AccessDecisions, ResourceAccess},
    members::Members,
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

/// Maximum length of a string whose end is not cached, and of a number or key that does not count as read. Reading
/// shorter ones again is cheap.
const MAX_FREE_BYTES: usize = 64;

/// One JSON object in the bytes in which it arrived.
pub struct JsonDocument<'a> {
    text: Result<Cow<'a, str>, &'static str>,
    /// The outermost value, and the containers located in it so far.
    root: ContainerNode,
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

/// A container of a document.
pub(super) struct ContainerNode {
    at: u32,
    is_list: bool,
    /// What is in it, located on first use.
    index: OnceCell<Box<Index>>,
}

/// The offsets of the values of one container.
pub(super) struct Index {
    offsets: Offsets,
    /// Those values that are containers, by their offsets. Created when an expression first reads one of them.
    containers: OnceCell<Vec<ContainerNode>>,
}

enum Offsets {
    List(Vec<u32>),
    /// An object. The last of equal keys counts, as in Go's decoder.
    Map(Members),
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
    node: &'a ContainerNode,
}

impl fmt::Debug for Container<'_> {
    /// Never shows the contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Container({})", self.node.at)
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
        let root = ContainerNode::new(text.as_deref().unwrap_or_default(), text.as_deref().map_or(0, blanks) as u32);
        Self { text, root, checked: false, ends: OnceCell::new(), strings: RefCell::default() }
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
        let begin = self.root.at as usize;
        let found = || match self.checked {
            true => json::Ends::of(text, begin),
            false => json::Ends::checking(text, begin),
        };
        self.ends.get_or_init(found).as_ref().map_err(|error| *error)
    }

    /// Returns the number of located containers.
    #[cfg(test)]
    pub(super) fn located_containers(&self) -> usize {
        self.root.located()
    }

    /// Returns the number of nodes of containers in the outermost value.
    #[cfg(test)]
    pub(super) fn container_nodes(&self) -> usize {
        self.root.nodes()
    }

    fn text(&self) -> Result<&str, Fault> {
        self.text.as_deref().map_err(|why| Fault::error(*why))
    }

    /// Returns the object itself.
    pub(super) fn root(&'a self, meter: &Meter<'_>) -> Result<DocumentValue<'a>, Fault> {
        self.value(self.text()?, self.root.at, || &self.root, meter)
    }

    /// Returns the value at `at`. If it is a container, `node` returns its node.
    fn value(
        &'a self,
        text: &'a str,
        at: u32,
        node: impl FnOnce() -> &'a ContainerNode,
        meter: &Meter<'_>,
    ) -> Result<DocumentValue<'a>, Fault> {
        let at = at as usize;
        let value = match text.as_bytes().get(at) {
            Some(b'{' | b'[') => DocumentValue::Container(Container { document: self, node: node() }),
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

impl ContainerNode {
    fn new(text: &str, at: u32) -> Self {
        let is_list = text.as_bytes().get(at as usize) == Some(&b'[');
        Self { at, is_list, index: OnceCell::new() }
    }

    /// Returns the number of located containers.
    #[cfg(test)]
    fn located(&self) -> usize {
        let Some(index) = self.index.get() else { return 0 };
        1 + index.containers.get().into_iter().flatten().map(Self::located).sum::<usize>()
    }

    /// Returns the number of nodes of containers in it.
    #[cfg(test)]
    fn nodes(&self) -> usize {
        let inner = self.index.get().and_then(|index| index.containers.get());
        inner.into_iter().flatten().map(|node| 1 + node.nodes()).sum()
    }
}

impl Index {
    /// Returns the number of values.
    fn len(&self) -> usize {
        match &self.offsets {
            Offsets::List(offsets) => offsets.len(),
            Offsets::Map(members) => members.all.len(),
        }
    }

    /// Returns the offset of the value of this number.
    fn offset(&self, number: usize) -> Option<u32> {
        match &self.offsets {
            Offsets::List(offsets) => offsets.get(number).copied(),
            Offsets::Map(members) => members.all.get(number).map(|member| member.at),
        }
    }

    /// Returns the container at `at`, which is one of the values.
    fn container(&self, text: &str, at: u32) -> &ContainerNode {
        let containers = self.containers.get_or_init(|| {
            let is_container = |at: &u32| matches!(text.as_bytes().get(*at as usize), Some(b'{' | b'['));
            let offsets = (0..self.len()).filter_map(|number| self.offset(number)).filter(is_container);
            let mut containers: Vec<_> = offsets.map(|at| ContainerNode::new(text, at)).collect();
            // They are not in order if the object has equal keys.
            containers.sort_unstable_by_key(|node| node.at);
            containers
        });
        &containers[containers.partition_point(|node| node.at < at)]
    }
}

impl<'a> Container<'a> {
    fn text(self) -> Result<&'a str, Fault> {
        self.document.text()
    }

    /// Returns true if this is a part of the document.
    pub(super) fn is_of(self, document: &JsonDocument<'_>) -> bool {
        std::ptr::from_ref(self.document).cast::<()>() == std::ptr::from_ref(document).cast()
    }

    pub(super) const fn is_list(self) -> bool {
        self.node.is_list
    }

    /// Returns the offsets of the values in it, which are located on first use.
    #[inline]
    fn index(self, meter: &Meter<'_>) -> Result<&'a Index, Fault> {
        match self.node.index.get() {
            Some(index) => Ok(index),
            None => self.locate(meter),
        }
    }

    fn locate(self, meter: &Meter<'_>) -> Result<&'a Index, Fault> {
        let (text, at) = (self.text()?, self.node.at as usize);
        let ends = self.document.ends(text).map_err(|error| not_json(&error))?;
        // All of its bytes are read. Those of a large container count before its index takes memory.
        let known_end = ends.end_of(at);
        known_end.map_or(Ok(()), |end| meter.read(end.saturating_sub(at)))?;
        let (index, end) = self.located(text, ends).map_err(|error| not_json(&error))?;
        if known_end.is_none() {
            meter.read(end - at)?;
        }
        Ok(self.node.index.get_or_init(|| Box::new(index)))
    }

    /// Locates the values in it. Returns their offsets and its end.
    fn located(self, text: &'a str, ends: &json::Ends) -> Result<(Index, usize), json::JsonError> {
        let at = self.node.at as usize;
        let (offsets, end) = if self.is_list() {
            let mut offsets = Vec::new();
            let end = ends.items(text, at, |at| offsets.push(at as u32))?;
            (Offsets::List(offsets), end)
        } else {
            let mut members = Members::default();
            let end = ends.members(text, at, |key_at, key, at| members.add(text, key_at as u32, key, at as u32))?;
            (Offsets::Map(members), end)
        };
        Ok((Index { offsets, containers: OnceCell::new() }, end))
    }

    /// Returns the number of values in it.
    pub(super) fn len(self, meter: &Meter<'_>) -> Result<usize, Fault> {
        self.index(meter).map(Index::len)
    }

    /// Returns the item or member of this number; `None` if there are fewer.
    pub(super) fn item(self, number: usize, meter: &Meter<'_>) -> Result<Option<DocumentValue<'a>>, Fault> {
        let index = self.index(meter)?;
        let Some(at) = index.offset(number) else { return Ok(None) };
        let text = self.text()?;
        self.document.value(text, at, || index.container(text, at), meter).map(Some)
    }

    /// Returns every key of an object; none of a list.
    pub(super) fn keys(self, meter: &Meter<'_>) -> Result<impl Iterator<Item = Result<Text<'a>, Fault>>, Fault> {
        let members = match &self.index(meter)?.offsets {
            Offsets::List(_) => &[][..],
            Offsets::Map(members) => &members.all,
        };
        let text = self.text()?;
        Ok(members.iter().map(move |member| self.document.string(text, member.key_at as usize, meter)))
    }

    /// Returns the member of this name.
    pub(super) fn member(self, key: &str, meter: &Meter<'_>) -> Result<Option<DocumentValue<'a>>, Fault> {
        let Some((index, at)) = self.find(key, meter)? else { return Ok(None) };
        let text = self.text()?;
        self.document.value(text, at, || index.container(text, at), meter).map(Some)
    }

    /// Returns true if there is a member of this name.
    pub(super) fn has_member(self, key: &str, meter: &Meter<'_>) -> Result<bool, Fault> {
        Ok(self.find(key, meter)?.is_some())
    }

    /// Returns the offset of the value of this name, and the index that has it.
    fn find(self, key: &str, meter: &Meter<'_>) -> Result<Option<(&'a Index, u32)>, Fault> {
        if key.len() > MAX_FREE_BYTES {
            meter.read(key.len())?;
        }
        let index = self.index(meter)?;
        let Offsets::Map(members) = &index.offsets else { return Ok(None) };
        let number = members.number_of(self.text()?, key);
        Ok(number.map(|number| (index, members.all[number].at)))
    }
}
