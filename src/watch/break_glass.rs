//! Break-glass loop: looks at the clocks, and at the local file, once a second, whatever the source does.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{self, MissedTickBehavior};

use crate::{
    live::break_glass::{BreakGlasses, GlassOrigin, Reread},
    source::{READ_DEADLINE, guarded},
};
use gatepost_api::BreakGlass;
use gatepost_base::files::BlockingReads;
use gatepost_config::SourceFile;

/// Result of one read of the file: its sound documents, and a fault.
type Found = (Vec<BreakGlass>, Option<String>);

/// Looks after what is open for ever; `file`: the one of `--break-glass-file`.
pub async fn keep(glasses: Arc<BreakGlasses>, file: Option<PathBuf>, every: Duration) {
    let (reads, mut reread) = (BlockingReads::default(), Reread::default());
    let mut ticks = time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if let Some(path) = file.clone() {
            match reads.run(READ_DEADLINE, move || read(&path)).await {
                Ok((documents, problem)) => take(&glasses, (reread.heeded(documents), problem)),
                // Documents read before stay open for their own time.
                Err(unread) => glasses.set_file_problem(Some(unread.to_string())),
            }
        }
        glasses.tick(time::Instant::now().into_std(), SystemTime::now());
    }
}

/// Looks at the file once, at the start. Blocks.
pub fn look(glasses: &BreakGlasses, file: &Path) {
    take(glasses, read(file));
}

fn take(glasses: &BreakGlasses, (documents, problem): Found) {
    glasses.set_file_problem(problem);
    glasses.take(GlassOrigin::File, documents, time::Instant::now().into_std(), SystemTime::now());
}

/// A file that another user may have written opens nothing.
fn read(path: &Path) -> Found {
    let bytes = match guarded::read(path, guarded::our_user()) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return (Vec::new(), None),
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let files = [SourceFile { name: path.display().to_string(), bytes }];
    let documents = gatepost_config::break_glass(&files);
    let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let problem =
        gatepost_config::load(&files, &no_file).err().and_then(|problems| Some(problems.first()?.to_string()));
    let empty = || Some(format!("{} holds no BreakGlass document", path.display()));
    let problem = problem.or_else(|| if documents.is_empty() { empty() } else { None });
    (documents, problem)
}
