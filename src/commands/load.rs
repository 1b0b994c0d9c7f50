//! Load: reads a file or folder and checks it as one configuration.

use std::{path::Path, time::Duration};

use crate::source::FileSource;
use gatepost_config::Snapshot;

/// Timeout of one read of a configuration. It allows for a slow mount, because only a person waits for a command.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the configuration in that file or folder.
///
/// # Errors
/// A message, if the configuration cannot be read or has problems.
pub(super) fn load(path: &Path) -> Result<Snapshot, String> {
    let contents = FileSource::new(path).read(READ_TIMEOUT).map_err(|error| error.to_string())?;
    let shown = path.display();
    gatepost_config::load(&contents.files, &|written| contents.reference(written))
        .map_err(|problems| format!("{shown} has problems ({}); see `gatepost check {shown}`", problems.len()))
}
