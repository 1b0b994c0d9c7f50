//! `demo`: runs a sidecar and hooks in this process, sends reviews, swaps the configuration, and kills hooks.
//!
//! The demo checks its results and fails if one is unexpected, so that it is also a test.

mod hooks;
mod initializers;
mod story;

use std::{
    cell::{Cell, RefCell},
    env,
    fmt::Display,
    fs::{self, DirBuilder},
    io::{self, IsTerminal, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use gatepost_operator::command::{CommandExit, complain, replace_file};
use serde::Deserialize;
use tokio::{
    runtime::Builder,
    time::{sleep, timeout},
    try_join,
};

use super::{review::ReviewClient, text};
use crate::{
    hooks::Method,
    runtime::{Running, Settings, Sidecar, settings::AuditLog},
};
use gatepost_api::{Endpoint, Transport, hook::Address};
use gatepost_wire::pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview};

const EXAMPLES: &str = "\
Examples:
  gatepost demo
  gatepost demo --initializers
      Pods get a label, a variable, a sidecar and images by digest; one is refused, one process crashes.
  gatepost demo --initializers --stay
      The same; then examples/initializers may attach.
  NO_COLOR=1 gatepost demo | less

Exit codes:
  0  everything went as described
  1  something did not; stderr says what";

/// See it work: a sidecar, hooks and reviews, all in this process
///
/// Needs nothing else on the machine. Starts a sidecar and six hooks on free ports of 127.0.0.1 and unix sockets, with
/// fresh certificates and a configuration in a temporary folder. Sends it reviews as a kube-apiserver would, and shows
/// for each the verdict, which hooks were called, where the time went, and how many object bytes were copied. Then it
/// swaps the configuration, kills hooks and brings them back, and writes an invalid configuration, all while reviews
/// are being sent. It ends by itself after a few seconds, and leaves nothing behind.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Demo {
    /// Show initializers instead: new Pods are prepared before anyone sees them
    #[arg(long)]
    initializers: bool,

    /// Stay afterwards until Ctrl-C, for initializers of your own
    #[arg(long, requires = "initializers")]
    stay: bool,
}

impl Demo {
    /// Runs the demo.
    pub fn run(&self) -> CommandExit {
        match if self.initializers { initializers::perform(self.stay) } else { story::perform() } {
            Ok(()) => CommandExit::Good,
            Err(what) => complain(&format!("the demo did not go as it should: {what}")),
        }
    }
}

/// Interval of reads of the configuration. It is shorter than that of `serve`, because people watch the demo.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// Timeout of every wait, long enough for a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Polls until `look` returns a value.
///
/// # Errors
/// The error of `look`, or a message if it returns no value within [`MAX_WAIT`].
async fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
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
fn ensure(holds: bool, otherwise: impl Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_string()) }
}

/// New temporary folder that only our user can access. It is removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignore errors: the system cleans up its temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new() -> Result<Self, String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let path = env::temp_dir().join(format!("gatepost-demo-{}-{}", process::id(), now.subsec_micros()));
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        private(&path).and_then(|()| private(&path.join("config"))).map_err(|error| {
            format!("cannot make {}: {error}; set TMPDIR to a folder that you may write in", path.display())
        })?;
        Ok(Self(path))
    }

    /// Returns the folder that the sidecar reads.
    fn config(&self) -> PathBuf {
        self.0.join("config")
    }

    /// Replaces a file of the configuration atomically.
    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let file = self.config().join(name);
        let written = replace_file(&file, text.as_bytes(), 0o600, None);
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}

/// A running sidecar, a client of it, and its audit log.
struct Stage {
    sidecar: Running,
    caller: ReviewClient,
    audit_log: PathBuf,
    /// Number of reviews sent by all callers, of rejected ones, and of the bytes of their objects.
    sent: Cell<usize>,
    rejected: Cell<usize>,
    object_bytes: Cell<usize>,
}

/// Fields of a review's audit record that the demo uses. `docs/audit.md` lists all fields.
#[derive(Deserialize)]
struct Record {
    generation: u64,
    took_us: u64,
    hooks: Vec<HookCall>,
}

impl Record {
    fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| format!("a damaged audit record: {error}"))
    }
}

/// Outcome of one hook's call.
#[derive(Deserialize)]
struct HookCall {
    hook: String,
    outcome: String,
    failure: Option<String>,
    took_us: u64,
}

/// Starts a sidecar with the folder's configuration, runs `play`, and stops the sidecar.
///
/// # Errors
/// The error of `play`, or a message if the sidecar does not start or drain.
fn perform(folder: &Folder, play: impl AsyncFnOnce(&Stage) -> Result<(), String>) -> Result<(), String> {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| format!("cannot start: {error}"))?;
    let path = folder.0.join("audit.jsonl");
    let audit_log = AuditLog::File(path.clone());
    let settings = Settings { read_every: READ_INTERVAL, audit_log, ..Settings::local(folder.config()) };
    let sidecar = Sidecar::start(settings).map_err(text)?;
    let tcp = sidecar.addresses.tcp;
    let address = Address::Tcp { host: tcp.ip().to_string().into(), port: tcp.port() };
    let endpoint = Endpoint { address, tls: None, transport: Transport::Grpc, authorization: None };
    let caller = runtime.block_on(async { ReviewClient::open(&endpoint) }).map_err(text)?;
    let stage = Stage {
        sidecar,
        caller,
        audit_log: path,
        sent: Cell::new(0),
        rejected: Cell::new(0),
        object_bytes: Cell::new(0),
    };
    let played = runtime.block_on(play(&stage));
    // Dropping the runtime closes our connections, for which a draining sidecar would wait.
    drop(runtime);
    let drained = stage.sidecar.stop();
    played?;
    ensure(drained.complete(), "the sidecar did not drain")
}

impl Stage {
    /// Sends a review. Returns the response and the time until it arrived.
    async fn send_review(
        &self,
        method: Method,
        review: &AdmissionReview,
    ) -> Result<(AdmissionResponse, Duration), String> {
        let mut review = review.clone();
        let request = review.request.get_or_insert_default();
        self.sent.update(|sent| sent + 1);
        self.object_bytes.update(|bytes| bytes + object_bytes(request));
        // Use a new uid: the sidecar treats a repeated uid as a repeated review.
        request.uid = Some(format!("00000000-0000-4000-8000-{:012}", self.sent.get()));
        let began = Instant::now();
        let answer = self.caller.send(method, &review, MAX_WAIT).await.map_err(text)?;
        let (took, response) = (began.elapsed(), answer.response.ok_or("the sidecar sent no response")?);
        self.rejected.update(|rejected| rejected + usize::from(!response.allowed()));
        Ok((response, took))
    }

    /// Waits until `look` returns a result from the lines of the audit log.
    async fn audit_log<T>(&self, look: impl Fn(&str) -> Result<Option<T>, String>) -> Result<T, String> {
        until("an audit record", || {
            let log = fs::read(&self.audit_log).map_err(|error| format!("cannot read the audit log: {error}"))?;
            // The last line may be incomplete.
            look(String::from_utf8_lossy(&log).rsplit_once('\n').map_or("", |(lines, _)| lines))
        })
        .await
    }

    /// Plays `scene` while two callers send the review again and again, which must be allowed. Returns the durations of
    /// all their answers, sorted.
    async fn with_crowd(
        &self,
        review: &AdmissionReview,
        scene: impl AsyncFnOnce(&Crowd) -> Result<(), String>,
    ) -> Result<Vec<Duration>, String> {
        let (stop, crowd) = (Cell::new(false), Crowd::default());
        let caller = async || {
            while !stop.get() {
                let (response, took) = self.send_review(Method::Review, review).await?;
                ensure(response.allowed(), format_args!("the crowd was disturbed: {}", status(&response).1))?;
                crowd.0.borrow_mut().push(took);
            }
            Ok(())
        };
        let scene = async {
            let played = scene(&crowd).await;
            stop.set(true);
            played
        };
        try_join!(scene, caller(), caller())?;
        let mut durations = crowd.0.into_inner();
        durations.sort_unstable();
        Ok(durations)
    }
}

/// Durations of the crowd's answers until now.
#[derive(Default)]
struct Crowd(RefCell<Vec<Duration>>);

impl Crowd {
    /// Waits for `more` further answers.
    async fn answers(&self, more: usize) -> Result<(), String> {
        let wanted = self.0.borrow().len() + more;
        until("the crowd's answers", || Ok((self.0.borrow().len() >= wanted).then_some(()))).await
    }
}

/// Returns the status code and the message of a response.
fn status(response: &AdmissionResponse) -> (i32, &str) {
    response.status.as_ref().map_or((0, ""), |status| (status.code(), status.message()))
}

/// Returns the number of bytes of the object and the old object together.
fn object_bytes(request: &AdmissionRequest) -> usize {
    let raws = [&request.object, &request.old_object].into_iter().flatten().filter_map(|object| object.raw.as_ref());
    raws.map(Bytes::len).sum()
}

/// Columns of a line with its label.
const WIDTH: usize = 96;
/// Columns of the label.
const LABEL_WIDTH: usize = 9;

/// Codes of a terminal's colours and styles.
const GOOD: &str = "32";
const BAD: &str = "31";
const BOLD: &str = "1";
const DIM: &str = "2";

/// Returns the text in that colour if stdout is a terminal and `NO_COLOR` is unset or empty.
fn tinted(colour: &str, text: &str) -> String {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if io::stdout().is_terminal() && !refused { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Prints a line.
fn line(text: impl Display) {
    // Ignore errors: a reader that has closed stdout (`| head`) needs no more.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints the heading of a chapter.
fn heading(text: impl AsRef<str>) {
    line(format!("\n{}", tinted(BOLD, text.as_ref())));
}

/// Prints a review's request, its size, and its verdict; then the message of a rejection, and the warnings.
fn verdict(what: &str, bytes: usize, response: &AdmissionResponse, [allowed, denied, rejected]: [&str; 3]) {
    let (colour, word) = match (response.allowed(), status(response).0) {
        (true, _) => (GOOD, allowed),
        (false, 403) => (BAD, denied),
        (false, _) => (BAD, rejected),
    };
    let size = format!("{} bytes", grouped(bytes));
    line(format!("\n  {what:<60}{size:>16}  {}", tinted(colour, word)));
    if !response.allowed() {
        let (code, message) = status(response);
        field("message", format!("{code} {message}"));
    }
    response.warnings.iter().for_each(|warning| field("warning", warning));
}

/// Prints a label and its text. Lines that are too long are wrapped between words.
fn field(label: &str, text: impl AsRef<str>) {
    let lines = text.as_ref().lines().flat_map(|line| wrapped(line, WIDTH - LABEL_WIDTH - 4));
    for (index, part) in lines.enumerate() {
        let label = if index == 0 { label } else { "" };
        line(tinted(DIM, &format!("    {label:<LABEL_WIDTH$}")) + &part);
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
fn grouped(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1000),
    }
}

/// Returns the time in milliseconds, with two decimals below 10 ms.
fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
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
