//! Stage: a sidecar in this process, its callers, its audit log, and printing.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    env,
    fmt::Display,
    fs::{self, DirBuilder, File},
    io::{self, BufRead, BufReader, IsTerminal, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use serde::Deserialize;
use tokio::{
    runtime::Builder,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    commands::review::ReviewClient,
    hooks::Method,
    runtime::{Running, Settings, Sidecar, settings::AuditLog},
};
use gatepost_api::{Endpoint, Transport, hook::Address};
use gatepost_wire::pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview};

/// Interval of reads of the configuration. It is shorter than that of `serve`, because people watch the demo.
pub(super) const READ_INTERVAL: Duration = Duration::from_millis(250);
/// Timeout of every wait, long enough for a busy machine.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Number of callers of a crowd.
const CALLERS: usize = 2;
/// Columns of a line with its label.
const WIDTH: usize = 96;
/// Columns of the label.
const LABEL_WIDTH: usize = 9;

/// Polls until `look` returns a value.
///
/// # Errors
/// The error of `look`, or a message if it returns no value within [`MAX_WAIT`].
pub(super) async fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let polling = async {
        loop {
            match look()? {
                Some(found) => return Ok(found),
                None => sleep(POLL_INTERVAL).await,
            }
        }
    };
    timeout(MAX_WAIT, polling).await.unwrap_or_else(|_| Err(format!("waited {MAX_WAIT:?} in vain for {what}")))
}

/// Returns the text of `otherwise` as an error if `holds` is false.
pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Returns any error as text.
pub(super) fn text(error: impl Display) -> String {
    error.to_string()
}

/// New temporary folder that only our user can access. It is removed on drop.
pub(super) struct Folder(pub(super) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignore errors: the system cleans up its temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    pub(super) fn new() -> Result<Self, String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let path = env::temp_dir().join(format!("gatepost-demo-{}-{}", process::id(), now.subsec_micros()));
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        private(&path).and_then(|()| private(&path.join("config"))).map_err(|error| {
            format!("cannot make {}: {error}; set TMPDIR to a folder that you may write in", path.display())
        })?;
        Ok(Self(path))
    }

    /// Returns the folder that the sidecar reads.
    pub(super) fn config(&self) -> PathBuf {
        self.0.join("config")
    }

    fn audit_log(&self) -> PathBuf {
        self.0.join("audit.jsonl")
    }

    /// Replaces a file of the configuration atomically.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let (draft, file) = (self.0.join("draft"), self.config().join(name));
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &file));
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}

/// A running sidecar, and a client of it.
pub(super) struct Stage {
    pub(super) sidecar: Running,
    /// Address of the sidecar, for further clients.
    pub(super) endpoint: Endpoint,
    /// Number of reviews sent by all callers.
    pub(super) sent: Cell<usize>,
    caller: ReviewClient,
}

/// Starts a sidecar with the folder's configuration, runs `play`, and stops the sidecar.
///
/// # Errors
/// The error of `play`, or a message if the sidecar does not start or drain.
pub(super) fn perform(folder: &Folder, play: impl AsyncFnOnce(&Stage) -> Result<(), String>) -> Result<(), String> {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| format!("cannot start: {error}"))?;
    let audit_log = AuditLog::File(folder.audit_log());
    let settings = Settings { read_every: READ_INTERVAL, audit_log, ..Settings::local(folder.config()) };
    let sidecar = Sidecar::start(settings).map_err(text)?;
    let tcp = sidecar.addresses.tcp;
    let address = Address::Tcp { host: tcp.ip().to_string().into(), port: tcp.port() };
    let endpoint = Endpoint { address, tls: None, transport: Transport::Grpc };
    let caller = runtime.block_on(async { ReviewClient::open(&endpoint) }).map_err(text)?;
    let stage = Stage { sidecar, endpoint, sent: Cell::new(0), caller };
    let played = runtime.block_on(play(&stage));
    // Dropping the runtime closes our connections, for which a draining sidecar would wait.
    drop(runtime);
    let drained = stage.sidecar.stop();
    played?;
    ensure(drained.complete(), || "the sidecar did not drain".to_owned())
}

impl Stage {
    /// Sends a review. Returns the response and the time until it arrived.
    pub(super) async fn ask(
        &self,
        method: Method,
        review: &AdmissionReview,
    ) -> Result<(AdmissionResponse, Duration), String> {
        self.sent.set(self.sent.get() + 1);
        let mut review = review.clone();
        if let Some(request) = &mut review.request {
            // Use a new uid: the sidecar treats a repeated uid as a repeated review.
            request.uid = Some(format!("00000000-0000-4000-8000-{:012}", self.sent.get()));
        }
        let began = Instant::now();
        let answer = self.caller.ask(method, &review, MAX_WAIT).await.map_err(text)?;
        Ok((answer.response.ok_or("the sidecar sent no response")?, began.elapsed()))
    }
}

/// Returns the status code and the message of a response.
pub(super) fn status(response: &AdmissionResponse) -> (i32, &str) {
    response.status.as_ref().map_or((0, ""), |status| (status.code(), status.message()))
}

/// Returns the number of bytes of the object and the old object together.
pub(super) fn object_bytes(request: &AdmissionRequest) -> usize {
    let raws = [&request.object, &request.old_object].into_iter().flatten().filter_map(|object| object.raw.as_ref());
    raws.map(Bytes::len).sum()
}

/// Callers that send the same review repeatedly until they are stopped.
pub(super) struct Crowd {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Result<Vec<Duration>, String>>>,
}

impl Crowd {
    /// Starts callers with a connection each. A caller fails if a review is not allowed.
    pub(super) fn start(endpoint: &Endpoint, review: &AdmissionReview) -> Result<Self, String> {
        let mut crowd = Self { stop: Arc::default(), answered: Arc::default(), callers: Vec::new() };
        for _ in 0..CALLERS {
            let caller = ReviewClient::open(endpoint).map_err(text)?;
            let (stop, answered, review) = (Arc::clone(&crowd.stop), Arc::clone(&crowd.answered), review.clone());
            crowd.callers.push(tokio::spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Relaxed) {
                    let began = Instant::now();
                    let answer = caller.ask(Method::Review, &review, MAX_WAIT).await.map_err(text)?;
                    took.push(began.elapsed());
                    let response = answer.response.unwrap_or_default();
                    ensure(response.allowed(), || format!("the crowd was disturbed: {}", status(&response).1))?;
                    answered.fetch_add(1, Relaxed);
                }
                Ok(took)
            }));
        }
        Ok(crowd)
    }

    /// Waits for `more` further answers, or until a caller fails. [`Crowd::end`] returns its error.
    pub(super) async fn answers(&self, more: usize) -> Result<(), String> {
        let wanted = self.answered.load(Relaxed) + more;
        let failed = || self.callers.iter().any(JoinHandle::is_finished);
        let done = || failed() || self.answered.load(Relaxed) >= wanted;
        until("the crowd's answers", || Ok(done().then_some(()))).await
    }

    /// Stops the callers. Returns the durations of all answers, sorted.
    pub(super) async fn end(self) -> Result<Vec<Duration>, String> {
        self.stop.store(true, Relaxed);
        let mut took = Vec::new();
        for caller in self.callers {
            took.extend(caller.await.map_err(text)??);
        }
        took.sort_unstable();
        Ok(took)
    }
}

/// Fields of a review's audit record that the demo uses. `docs/audit.md` lists all fields.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    uid: String,
    pub(super) generation: u64,
    pub(super) took_us: u64,
    pub(super) hooks: Vec<HookCall>,
}

/// Outcome of one hook's call.
#[derive(Debug, Deserialize)]
pub(super) struct HookCall {
    pub(super) hook: String,
    pub(super) outcome: String,
    pub(super) failure: Option<String>,
    pub(super) took_us: u64,
}

/// Reader of the sidecar's audit log, which grows.
pub(super) struct Records {
    log: BufReader<File>,
    /// Beginning of a line that is not yet complete.
    line: Vec<u8>,
    unclaimed: HashMap<String, Record>,
    pub(super) reviews: usize,
    pub(super) calls: usize,
    /// Number of reviews decided under each generation.
    pub(super) by_generation: BTreeMap<u64, usize>,
}

impl Records {
    pub(super) fn open(folder: &Folder) -> Result<Self, String> {
        let path = folder.audit_log();
        let log = File::open(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(Self {
            log: BufReader::new(log),
            line: Vec::new(),
            unclaimed: HashMap::new(),
            reviews: 0,
            calls: 0,
            by_generation: BTreeMap::new(),
        })
    }

    /// Waits for the record of a review.
    pub(super) async fn of(&mut self, uid: &str) -> Result<Record, String> {
        until("the review's audit record", || {
            self.read_on()?;
            Ok(self.unclaimed.remove(uid))
        })
        .await
    }

    /// Waits until the log has records of `reviews` reviews in total.
    pub(super) async fn all(&mut self, reviews: usize) -> Result<(), String> {
        until("the last audit records", || {
            self.read_on()?;
            Ok((self.reviews >= reviews).then_some(()))
        })
        .await
    }

    fn read_on(&mut self) -> Result<(), String> {
        let cannot = |error: io::Error| format!("cannot read the audit log: {error}");
        while self.log.read_until(b'\n', &mut self.line).map_err(cannot)? > 0 && self.line.ends_with(b"\n") {
            let record: Record =
                serde_json::from_slice(&self.line).map_err(|error| format!("a damaged audit record: {error}"))?;
            self.line.clear();
            self.reviews += 1;
            self.calls += record.hooks.len();
            *self.by_generation.entry(record.generation).or_default() += 1;
            self.unclaimed.insert(record.uid.clone(), record);
        }
        Ok(())
    }
}

/// Codes of a terminal's colours and styles.
pub(super) const GOOD: &str = "32";
pub(super) const BAD: &str = "31";
const BOLD: &str = "1";
const DIM: &str = "2";

/// Returns the text in that colour if stdout is a terminal and `NO_COLOR` is unset or empty.
fn tinted(colour: &str, text: &str) -> String {
    static COLOURED: LazyLock<bool> = LazyLock::new(|| {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        io::stdout().is_terminal() && !refused
    });
    if *COLOURED { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Prints a line.
pub(super) fn line(text: impl AsRef<str>) {
    // Ignore errors: a reader that has closed stdout (`| head`) needs no more.
    let _ = writeln!(io::stdout(), "{}", text.as_ref());
}

/// Prints the heading of a chapter.
pub(super) fn heading(text: impl AsRef<str>) {
    line(format!("\n{}", tinted(BOLD, text.as_ref())));
}

/// Prints a review's request, its size, and its verdict in a colour.
pub(super) fn verdict(what: &str, bytes: usize, colour: &str, word: &str) {
    let size = format!("{} bytes", grouped(bytes));
    line(format!("\n  {what:<60}{size:>16}  {}", tinted(colour, word)));
}

/// Prints a label and its text, wrapped if it is long.
pub(super) fn field(label: &str, text: impl AsRef<str>) {
    for (index, part) in wrapped(text.as_ref(), WIDTH - LABEL_WIDTH - 4).iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        line(tinted(DIM, &format!("    {label:<LABEL_WIDTH$}")) + part);
    }
}

/// Prints lines under one label.
pub(super) fn fields(label: &str, texts: impl IntoIterator<Item = String>) {
    for (index, text) in texts.into_iter().enumerate() {
        field(if index == 0 { label } else { "" }, text);
    }
}

/// Splits the text between words into lines of `width` characters. A longer word gets a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns a number such as `512034` in the form `512,034`.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let head = digits.len() % 3;
    let (first, rest) = digits.split_at(head);
    let mut groups: Vec<&str> = rest.as_bytes().chunks(3).filter_map(|group| str::from_utf8(group).ok()).collect();
    if head > 0 {
        groups.insert(0, first);
    }
    groups.join(",")
}

/// Returns the time in milliseconds, with two decimals below 10 ms.
pub(super) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
}

/// Returns the median of a sorted list, in milliseconds.
pub(super) fn median(sorted: &[Duration]) -> String {
    millis(sorted.get(sorted.len() / 2).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_groups_digits_and_wraps_lines() {
        assert_eq!([0, 999, 1000, 512_034].map(grouped), ["0", "999", "1,000", "512,034"]);
        assert_eq!(wrapped("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrapped("aaaaaaaa b", 5), ["aaaaaaaa", "b"]);
        assert_eq!([500, 12_345].map(|micros| millis(Duration::from_micros(micros))), ["0.50 ms", "12 ms"]);
    }
}
