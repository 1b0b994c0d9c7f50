//! Steps: places at which a trial stops this process, to kill it or another there.
//!
//! `STEPS` names a folder. Where it has a file with a step's name, whoever reaches the step renames it to `NAME.reached` and
//! waits until that is gone.

use std::{path::PathBuf, time::Duration};

const LOOK: Duration = Duration::from_millis(10);

/// A step is reached.
pub(crate) async fn reached(step: &str) {
    let Some(folder) = std::env::var_os("STEPS").map(PathBuf::from) else { return };
    let waiting = folder.join(format!("{step}.reached"));
    if std::fs::rename(folder.join(step), &waiting).is_err() {
        return;
    }
    while waiting.exists() {
        tokio::time::sleep(LOOK).await;
    }
}
