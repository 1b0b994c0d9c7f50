//! Break-glass loop: checks the clocks and the local file at a regular interval, whatever the source does.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{self, MissedTickBehavior};

use crate::{
    live::break_glass::{BreakGlassDocuments, BreakGlassOrigin, ConfirmedDocuments},
    source::{READ_DEADLINE, guarded},
};
use gatepost_api::BreakGlass;
use gatepost_base::files::BlockingReads;
use gatepost_config::SourceFile;

/// Valid documents of the file, and the first problem.
type FileRead = (Vec<BreakGlass>, Option<String>);

/// Keeps the open documents current until dropped. `file` is the path of `--break-glass-file`.
pub async fn run_break_glass(glasses: Arc<BreakGlassDocuments>, file: Option<PathBuf>, every: Duration) {
    let (reads, mut confirmed) = (BlockingReads::default(), ConfirmedDocuments::default());
    let mut ticks = time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if let Some(path) = file.clone() {
            match reads.run(READ_DEADLINE, move || read(&path)).await {
                Ok((documents, problem)) => apply_file(&glasses, (confirmed.apply(documents), problem)),
                // Documents that were read before stay open until their own end.
                Err(failure) => glasses.set_file_problem(Some(failure.to_string())),
            }
        }
        glasses.tick(time::Instant::now().into_std(), SystemTime::now());
    }
}

/// Reads the file once, at the start, and applies its documents. Blocks.
pub fn read_at_start(glasses: &BreakGlassDocuments, file: &Path) {
    apply_file(glasses, read(file));
}

fn apply_file(glasses: &BreakGlassDocuments, (documents, problem): FileRead) {
    glasses.set_file_problem(problem);
    glasses.set_documents(BreakGlassOrigin::File, documents, time::Instant::now().into_std(), SystemTime::now());
}

/// Reads the file. A file that another user may have written has no effect.
fn read(path: &Path) -> FileRead {
    let bytes = match guarded::read(path, guarded::effective_user()) {
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
