//! The folder of objects that the sidecar reads, and changes of one of them.

use std::{
    cell::{Cell, RefCell},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::Fallible;

/// Hooks in one object; each object's hooks have one address.
pub(super) const HOOKS: usize = 10;
/// Rules of one hook.
const RULES: usize = 10;

/// Layout of the written objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A file an object, in JSON, which every YAML reader reads.
    JsonEach,
    /// One file of JSON documents.
    Json,
    /// One file of YAML documents.
    Yaml,
}

impl Layout {
    fn extension(self) -> &'static str {
        match self {
            Self::JsonEach | Self::Json => "json",
            Self::Yaml => "yaml",
        }
    }
}

/// An object as it is to be written.
#[derive(Debug)]
pub(super) struct Change {
    name: String,
    text: String,
}

/// The configuration as it is written.
#[derive(Debug)]
pub(super) struct Configuration {
    folder: PathBuf,
    elsewhere: PathBuf,
    addresses: Vec<SocketAddr>,
    matched: usize,
    layout: Layout,
    /// Number of changes of each object. Additions stay: taking one back would enforce less, and from files that waits
    /// for a second, equal read, which there is none of where every second brings a change.
    changes: RefCell<Vec<usize>>,
    next: Cell<usize>,
}

impl Configuration {
    /// Writes an object for each address. The first `matched` hooks of the first objects see pods.
    pub(super) fn write(folder: &Path, addresses: Vec<SocketAddr>, matched: usize, layout: Layout) -> Fallible<Self> {
        fs::create_dir_all(folder)?;
        let elsewhere = folder.with_extension("elsewhere");
        fs::create_dir_all(&elsewhere)?;
        let changes = RefCell::new(vec![0; addresses.len()]);
        let next = Cell::new(0);
        let written = Self { folder: folder.to_owned(), elsewhere, addresses, matched, layout, changes, next };
        if layout != Layout::JsonEach {
            written.put("all", &written.whole()?)?;
        } else {
            for number in 0..written.addresses.len() {
                written.put(&format!("team-{number}"), &written.object(number).to_string())?;
            }
        }
        Ok(written)
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The change that gives the first hook of the next object another time-out and one more resource.
    pub(super) fn next(&self) -> Fallible<Change> {
        let number = self.next.get();
        self.next.set((number + 1) % self.addresses.len());
        self.changes.borrow_mut()[number] += 1;
        Ok(if self.layout != Layout::JsonEach {
            Change { name: "all".to_owned(), text: self.whole()? }
        } else {
            Change { name: format!("team-{number}"), text: self.object(number).to_string() }
        })
    }

    /// Writes it where it is read, by rename as everybody should.
    pub(super) fn make(&self, Change { name, text }: &Change) -> Fallible<()> {
        self.put(name, text)
    }

    /// Writes it as well, where nobody reads it: what writing costs the machine is no part of what a swap does.
    pub(super) fn make_elsewhere(&self, Change { name, text }: &Change) -> Fallible<()> {
        put(&self.elsewhere, name, self.layout.extension(), text)
    }

    fn whole(&self) -> Fallible<String> {
        let document = |number| {
            let object = self.object(number);
            Ok(match self.layout {
                Layout::Yaml => format!("---\n{}", serde_saphyr::to_string(&object)?),
                Layout::Json | Layout::JsonEach => format!("{object}\n"),
            })
        };
        (0..self.addresses.len()).map(document).collect()
    }

    fn put(&self, name: &str, text: &str) -> Fallible<()> {
        put(&self.folder, name, self.layout.extension(), text)
    }

    /// The object as it is now.
    fn object(&self, number: usize) -> Value {
        let changes = self.changes.borrow()[number];
        let hook = |index: usize| {
            // One object's first hook, then the next one's: those that are matched have different addresses.
            let matched = index == 0 && number < self.matched;
            let mut rules: Vec<_> = (0..RULES).map(|rule| self::rule(number, index, rule, matched)).collect();
            let changes = if index == 0 { changes } else { 0 };
            let resources = rules[0]["resources"].as_array_mut();
            resources.into_iter().for_each(|all| all.extend((0..changes).map(|change| format!("more{change}").into())));
            json!({
                "name": format!("hook-{index}.team-{number}.example.com"),
                "clientConfig": {"url": format!("grpc://{}", self.addresses[number])},
                "rules": rules,
                "failurePolicy": "Fail",
                "timeout": format!("{}ms", 10_000 - changes),
                "sideEffects": "None",
            })
        };
        json!({
            "apiVersion": "gatepost.dev/v1alpha1",
            "kind": "AdmissionControlConfiguration",
            "metadata": {"name": format!("team-{number}")},
            "externalAdmissionHooks": (0..HOOKS).map(hook).collect::<Vec<_>>(),
        })
    }
}

fn put(folder: &Path, name: &str, extension: &str, text: &str) -> Fallible<()> {
    let beside = folder.join(format!(".{name}"));
    fs::write(&beside, text)?;
    Ok(fs::rename(beside, folder.join(format!("{name}.{extension}")))?)
}

/// The last rule of a hook that is matched is for pods; all others are for resources that nobody sends.
fn rule(number: usize, hook: usize, rule: usize, matched: bool) -> Value {
    let (group, resource) = match matched && rule == RULES - 1 {
        true => (String::new(), "pods".to_owned()),
        false => (format!("group{}.example.com", (number + rule) % 40), format!("things{hook}")),
    };
    json!({
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [group],
        "apiVersions": ["v1", "v1beta1"],
        "resources": [resource, format!("others{rule}")],
        "scope": "*",
    })
}
