//! Place: where the document is written.

use std::{
    fmt,
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Where the document is written; one of them.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct PlaceArgs {
    /// The folder that `serve --config` reads
    #[arg(long, value_name = "FOLDER")]
    config: Option<PathBuf>,

    /// The local file that `serve --break-glass-file` reads, which works whatever the source does
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

/// Why it could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("{} is no folder; give the folder that `serve --config` reads, or --file PATH where `serve --break-glass-file PATH` reads it", .0.display())]
    NoFolder(PathBuf),
    #[error("--name {0:?} cannot be the name of a file; use letters, digits, dots and dashes")]
    Name(String),
    #[error("{} cannot be written: {cause}; run this as a user who may write there", path.display())]
    Write { path: PathBuf, cause: io::Error },
    #[error("nothing is open by that name: there is no {}", .0.display())]
    Absent(PathBuf),
}

/// One file.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl PlaceArgs {
    /// The file for the document of that name.
    pub(super) fn open(self, name: &str) -> Result<Place, PlaceError> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(PlaceError::Name(name.to_owned()));
        }
        let path = match (self.config, self.file) {
            (Some(folder), _) if !folder.is_dir() => return Err(PlaceError::NoFolder(folder)),
            (Some(folder), _) => folder.join(file_name(name)),
            (None, file) => file.unwrap_or_default(),
        };
        Ok(Place { path })
    }

    /// The command that ends it.
    pub(super) fn ending(&self, name: &str) -> String {
        let place = match (&self.config, &self.file) {
            (Some(folder), _) => format!("--config {}", folder.display()),
            (None, file) => format!("--file {}", file.as_deref().unwrap_or(Path::new("")).display()),
        };
        let name = if name == "break-glass" { String::new() } else { format!(" --name {name}") };
        format!("gatepost break-glass --end{name} {place}")
    }
}

fn file_name(name: &str) -> String {
    if name == "break-glass" { "break-glass.yaml".to_owned() } else { format!("break-glass-{name}.yaml") }
}

impl Place {
    /// Writes the document as a whole or not at all; nobody but us may write it, and everybody may read it.
    pub(super) fn write(&self, text: &[u8]) -> Result<(), PlaceError> {
        let failed = |cause| PlaceError::Write { path: self.path.clone(), cause };
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        // Hidden: a source passes over names that begin with a dot.
        let beside = folder.join(format!(".{name}.{}", std::process::id()));
        let written = || {
            let mut file = File::options().write(true).create_new(true).open(&beside)?;
            file.write_all(text)?;
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        };
        written().map_err(|cause| {
            // Where it cannot be removed either, there is a hidden file more; the cause is what matters.
            let _ = fs::remove_file(&beside);
            failed(cause)
        })
    }

    /// Takes the document away.
    pub(super) fn remove(&self) -> Result<(), PlaceError> {
        fs::remove_file(&self.path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => PlaceError::Absent(self.path.clone()),
            _ => PlaceError::Write { path: self.path.clone(), cause },
        })
    }
}
