//! A file that hangs whoever opens it, and a name that hangs whoever looks it up, for one process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Calls that hang, and from when on.
pub struct Stall {
    library: PathBuf,
    flag: PathBuf,
}

impl Stall {
    /// Nothing hangs yet; `folder` is for what is needed.
    pub fn new(folder: &Path) -> Self {
        let (library, flag) = (folder.join("stall.so"), folder.join("stall"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/stall.c");
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
        assert!(compiled.expect("a C compiler, as the build needs one").success());
        Self { library, flag }
    }

    /// Has this file hang the process, or this name, while [`Stall::begin`] holds.
    pub fn on(&self, command: &mut Command, file: &Path, name: &str) {
        command.env("LD_PRELOAD", &self.library).env("STALL", &self.flag);
        command.env("STALL_OPEN", file).env("STALL_NAME", name);
    }

    pub fn begin(&self) {
        fs::write(&self.flag, "").expect("written");
    }

    pub fn end(&self) {
        fs::remove_file(&self.flag).expect("removed");
    }
}
