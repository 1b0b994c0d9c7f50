//! The stage: a sidecar in this process, its hooks, a caller, and a count of everything.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{
    cast::{Cast, DOMAIN, FIRST, Part, Way},
    records::{Asked, Record, Records},
    reviews::{object_bytes, title},
    screen::{Screen, Tint, grouped, millis},
    wait::{LONG, until},
};
use crate::{
    cli::ask::ReviewClient,
    hooks::Method,
    live::{LiveHook, Rotation},
    model::{Endpoint, Transport, hook::Address, verdict},
    runtime::{Running, Settings, Sidecar, settings::AuditLog},
    wire::pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview},
};

/// `serve` reads every second; here people watch.
pub(super) const READ_EVERY: Duration = Duration::from_millis(250);

/// Everything that plays.
pub(super) struct Stage {
    pub(super) screen: Screen,
    pub(super) cast: Cast,
    pub(super) sidecar: Running,
    pub(super) records: Records,
    pub(super) sidecar_at: Endpoint,
    /// Durations of the reviews as their callers saw them.
    pub(super) took: Vec<Duration>,
    /// Reviews sent, by anybody.
    pub(super) sent: usize,
    pub(super) rejected: usize,
    /// Object bytes in them.
    pub(super) object_bytes: u64,
    caller: ReviewClient,
}

/// Response, and its audit record.
pub(super) struct Reviewed {
    pub(super) response: AdmissionResponse,
    pub(super) record: Record,
}

impl Reviewed {
    pub(super) fn message(&self) -> &str {
        self.response.status.as_ref().map_or("", |status| status.message())
    }

    pub(super) fn code(&self) -> i32 {
        self.response.status.as_ref().map_or(0, |status| status.code())
    }

    /// Outcome of that hook's call; "" when it was not asked.
    pub(super) fn outcome(&self, part: &Part) -> &str {
        let asked = self.record.hooks.iter().find(|asked| short(&asked.hook) == part.name);
        asked.map_or("", |asked| &asked.outcome)
    }

    /// Is that hook named by an annotation that begins so?
    pub(super) fn annotated(&self, prefix: &str, part: &Part) -> bool {
        self.response.audit_annotations.iter().any(|(key, name)| key.starts_with(prefix) && short(name) == part.name)
    }
}

fn short(name: &str) -> &str {
    name.strip_suffix(DOMAIN).unwrap_or(name)
}

impl Stage {
    /// Starts the hooks, writes their configuration, starts the sidecar over it, and connects. Needs a runtime.
    pub(super) fn set(screen: Screen) -> Result<Self, String> {
        let mut cast = Cast::gather()?;
        for part in &FIRST {
            cast.enter(part)?;
        }
        cast.write(&cast.document(&FIRST))?;
        let audit_log = AuditLog::File(cast.audit_log());
        let settings = Settings { read_every: READ_EVERY, audit_log, ..Settings::local(cast.config()) };
        let sidecar = Sidecar::start(settings).map_err(|error| error.to_string())?;
        let records = Records::open(&cast.audit_log())?;
        let sidecar_at = plaintext(sidecar.addresses.tcp);
        let caller = ReviewClient::open(&sidecar_at).map_err(|error| error.to_string())?;
        let stage = Self {
            screen,
            cast,
            sidecar,
            records,
            sidecar_at,
            took: Vec::new(),
            sent: 0,
            rejected: 0,
            object_bytes: 0,
            caller,
        };
        stage.introduce();
        Ok(stage)
    }

    fn introduce(&self) {
        let (screen, addresses) = (&self.screen, &self.sidecar.addresses);
        screen.heading("A sidecar and six hooks (their names end with .example.com), in this process");
        screen.line("");
        screen.field("sidecar", &format!("gRPC on {}, admin pages on {}", addresses.tcp, addresses.admin));
        let config = self.cast.config();
        screen.field("config", &config.display().to_string());
        screen.field("", &format!("read every {READ_EVERY:?} here, so that nobody waits; every second by serve"));
        for (index, part) in FIRST.iter().enumerate() {
            let way = match part.way {
                Way::MutualTls => "mutual TLS",
                Way::Plaintext => "plaintext",
                Way::UnixSocket => "unix socket",
            };
            let (operations, _, resources) = part.rule;
            let rule = format!("{operations} of {resources}").replace('"', "");
            let (name, policy, timeout) = (part.name, part.failure_policy, part.timeout);
            let label = if index == 0 { "hooks" } else { "" };
            screen.field(label, &format!("{name:<18}{way:<13}{policy:<8}{timeout:<6}{rule}"));
        }
    }

    /// Asks, without showing it.
    pub(super) async fn ask(&mut self, review: &AdmissionReview) -> Result<(Reviewed, Duration), String> {
        self.sent += 1;
        let mut review = review.clone();
        // A review's uid is its own, however often the same thing is asked.
        let uid = format!("00000000-0000-4000-8000-{:012}", self.sent);
        if let Some(request) = &mut review.request {
            request.uid = Some(uid.clone());
            self.object_bytes += object_bytes(request) as u64;
        }
        let asked = Instant::now();
        let answer = self.caller.ask(Method::Review, &review, LONG).await.map_err(|error| error.to_string())?;
        let took = asked.elapsed();
        let response = answer.response.ok_or("the sidecar sent no response")?;
        self.rejected += usize::from(!response.allowed());
        let record = self.records.of(&uid).await?;
        Ok((Reviewed { response, record }, took))
    }

    /// A crowd has asked this so many times.
    pub(super) fn crowded(&mut self, review: &AdmissionReview, times: usize) {
        self.sent += times;
        self.object_bytes += (review.request.as_ref().map_or(0, object_bytes) * times) as u64;
    }

    /// Asks, and shows everything about it.
    pub(super) async fn show(&mut self, review: &AdmissionReview) -> Result<Reviewed, String> {
        let before = self.sidecar.metrics.copied_bytes();
        let (reviewed, took) = self.ask(review).await?;
        let copied = self.sidecar.metrics.copied_bytes() - before;
        self.took.push(took);
        let Some(request) = &review.request else { return Ok(reviewed) };
        let bytes = object_bytes(request);
        let ending = match (reviewed.response.allowed(), reviewed.code()) {
            (true, _) => (Tint::Good, "ALLOWED"),
            (false, 403) => (Tint::Bad, "DENIED"),
            (false, _) => (Tint::Bad, "REJECTED"),
        };
        let screen = &self.screen;
        screen.verdict(&title(request), bytes, ending);
        if !reviewed.response.allowed() {
            screen.field("message", &format!("{} {}", reviewed.code(), reviewed.message()));
        }
        for warning in &reviewed.response.warnings {
            screen.field("warning", warning);
        }
        // The revision that decided stands in each, and says nothing that the story does not.
        for (key, value) in reviewed.response.audit_annotations.iter().filter(|(key, _)| *key != verdict::REVISION) {
            screen.field("noted", &format!("{key}: {value}").replace(DOMAIN, ""));
        }
        asked(screen, &reviewed.record);
        screen.field("time", &time(&reviewed.record, took));
        let hooks = match reviewed.record.hooks.len() {
            1 => "1 hook".to_owned(),
            more => format!("{more} hooks"),
        };
        let copies = format!("{} of {} object bytes copied", grouped(copied), grouped(bytes as u64));
        screen.field("bytes", &format!("{copies} in user space, for {hooks}"));
        if copied > bytes as u64 / 10 + 1024 {
            return Err(format!("{copied} of {bytes} object bytes were copied"));
        }
        Ok(reviewed)
    }

    /// The hook as it stands now; nothing when it is not in force.
    pub(super) fn live(&self, part: &Part) -> Option<LiveHook> {
        let generation = self.sidecar.current.load();
        generation.hooks.iter().find(|live| short(&live.hook.name) == part.name).cloned()
    }

    /// Number of the generation in force.
    pub(super) fn generation(&self) -> u64 {
        self.sidecar.current.load().number
    }

    /// Waits until the hook is being probed; returns why its first probe failed.
    pub(super) async fn probed(&self, part: &Part) -> Result<String, String> {
        let mut why = String::new();
        until("a failed probe", || {
            if let Some(LiveHook { rotation: Rotation::Probing { last_failure: Some(failure), .. }, .. }) =
                self.live(part)
            {
                why = failure.to_string();
            }
            Ok(!why.is_empty())
        })
        .await?;
        Ok(why)
    }

    /// Waits until the hook is asked.
    pub(super) async fn active(&self, part: &Part) -> Result<(), String> {
        let is_active = || matches!(self.live(part), Some(LiveHook { rotation: Rotation::Active { .. }, .. }));
        until("the new hook's rotation", || Ok(is_active())).await
    }
}

/// One line for each hook that was asked: how it ended, and after what time.
fn asked(screen: &Screen, record: &Record) {
    for (index, asked) in record.hooks.iter().enumerate() {
        let failure = match asked.failure.as_deref() {
            Some("timeout") => "no answer in time",
            Some("connect") => "cannot connect",
            Some("connection") => "connection lost",
            Some("grpc_status") => "gRPC error",
            Some(other) => other,
            None => "",
        };
        let how = match &*asked.outcome {
            "allowed" => "yes".to_owned(),
            "denied" => "NO".to_owned(),
            "failed_open" => format!("{failure}: ignored"),
            "failed_closed" => failure.to_owned(),
            other => other.to_owned(),
        };
        let label = if index == 0 { "asked" } else { "" };
        screen.field(label, &format!("{:<18}{:>8}  {how}", short(&asked.hook), millis(asked.took())));
    }
    if record.hooks.is_empty() {
        screen.field("asked", "nobody: no rule matches");
    }
}

/// Breakdown of the time.
fn time(record: &Record, took: Duration) -> String {
    let decided = Duration::from_micros(record.took_us);
    let ended = record.hooks.iter().filter(|asked| asked.outcome != "cancelled");
    let hook = ended.map(Asked::took).max().unwrap_or_default();
    format!(
        "{} = {} slowest hook + {} deciding + {} to and from the caller",
        millis(took),
        millis(hook),
        millis(decided.saturating_sub(hook)),
        millis(took.saturating_sub(decided)),
    )
}

fn plaintext(address: SocketAddr) -> Endpoint {
    Endpoint {
        address: Address::Tcp { host: address.ip().to_string().into(), port: address.port() },
        tls: None,
        transport: Transport::Grpc,
    }
}
