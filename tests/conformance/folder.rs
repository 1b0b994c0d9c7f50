//! Folder: folder of the vectors.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

/// The folder of vectors that is run.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// True where it holds the vectors that this repository has a copy of.
    pub(crate) is_known: bool,
    /// The folder in it whose files are run; "" is itself.
    below: &'static str,
}

/// Folders below `tests/vectors` with vectors of our own. They are in no other folder of vectors.
const OWN: [&str; 1] = ["initializers"];

impl Folder {
    /// `GATEPOST_VECTORS`, else `../shared/vectors`, else the copy.
    pub(crate) fn choose() -> Self {
        if let Some(path) = env::var_os("GATEPOST_VECTORS").filter(|path| !path.is_empty()) {
            return Self { path: path.into(), is_known: false, below: "" };
        }
        let path = if shared().is_dir() { shared() } else { copy() };
        Self { path, is_known: true, below: "" }
    }

    /// Folders of our own vectors; none where somebody named a folder.
    pub(crate) fn own(&self) -> Vec<Self> {
        let own = |below| Self { path: copy(), is_known: true, below };
        if self.is_known { OWN.map(own).into() } else { Vec::new() }
    }

    /// The names of its tables, in order. Prose (`.md`) is passed by; anything else is not understood.
    pub(crate) fn files(&self, failures: &mut Vec<String>) -> Vec<String> {
        let mut names = match names(&self.path.join(self.below)) {
            Ok(names) => names,
            Err(error) => {
                failures.push(format!("{}: {error}", self.path.display()));
                return Vec::new();
            }
        };
        names.retain(|name| !name.ends_with(".md"));
        if names.is_empty() {
            failures.push(format!("{}: no file of cases", self.path.display()));
        }
        if !self.below.is_empty() {
            names.iter_mut().for_each(|name| *name = format!("{}/{name}", self.below));
        }
        names
    }

    /// The text of one of its files.
    pub(crate) fn read(&self, file: &str) -> std::io::Result<String> {
        fs::read_to_string(self.path.join(file))
    }

    /// Files that the copy in this repository lacks or has otherwise than `../shared/vectors`, where that is there.
    pub(crate) fn differences_from_copy(&self) -> Vec<String> {
        if !self.is_known || self.path == copy() {
            return Vec::new();
        }
        let (there, here) = (contents(&self.path), contents(&copy()));
        let differs = |name: &&String| there.get(*name) != here.get(*name);
        let mut names: Vec<&String> = there.keys().chain(here.keys()).filter(differs).collect();
        names.sort();
        names.dedup();
        let say = |name: &String| format!("tests/vectors/{name} is not the {name} of {}", self.path.display());
        names.into_iter().map(say).collect()
    }
}

fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors")
}

fn copy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path| !path.as_ref().is_ok_and(|path| path.is_dir()))
        .map(|path: std::io::Result<PathBuf>| Ok(path?.file_name().unwrap_or_default().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>()?;
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    Ok(names)
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = names(folder).expect("a folder of vectors");
    names.into_iter().map(|name| (name.clone(), fs::read(folder.join(&name)).expect("a file of vectors"))).collect()
}
