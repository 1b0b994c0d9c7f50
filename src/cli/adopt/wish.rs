//! Wish: a person's request to adopt or release webhooks, written to the leader's lease for the replicas, and its
//! result.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;
use tokio::time::sleep;

use super::alone::{give_back, lives};
use crate::{
    adopt::{
        AdoptionRequests, AdoptionScope, AdoptionSettings, CONDITION, FinalizerChange, LEADER_LEASE, Lease,
        OwnRegistration, REPLICA_LEASE_DURATION, Reason, SeenWebhook, WebhookKey, WebhookStanding, change_finalizer,
        version_without_conditions,
    },
    cli::plural::counted,
    kube::{KubeAccess, KubeClient, KubeError},
    model::HookType,
    source::kubernetes::adopting,
};

/// Polling interval.
const EVERY: Duration = Duration::from_millis(500);
/// Attempts of a write that conflicts with others.
const TRIES: usize = 10;
/// Most bytes of the patch with all requests: the lease has more to hold.
const MOST_WISHES: usize = 64 << 10;

/// Prefix of the text of `Reason::NotWanted`.
const NOT_SELECTED: &str = "not selected";
/// Prefix of the text of `Reason::Released`.
const RELEASED: &str = "released;";
/// Time without a renewal after which no replica leads: with another one alive, that has taken the lease by then.
const LEADERLESS: Duration = REPLICA_LEASE_DURATION.saturating_add(Duration::from_secs(5));
/// Time for which replicas may go on calling a webhook that was given back.
const GOES_ON: Duration = Duration::from_secs(5);

/// State of webhooks that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Taken,
    Released,
}

/// One cluster, and the leases of its replicas.
#[derive(Debug)]
pub(super) struct Cluster {
    client: KubeClient,
    adopt: AdoptionSettings,
    /// Progress as last printed.
    waits_for: String,
}

fn failed(error: &KubeError) -> String {
    format!("{error}; {}", error.fix())
}

impl Cluster {
    pub(super) async fn open(
        access: &KubeAccess,
        namespace: String,
        registration: Option<String>,
    ) -> Result<Self, String> {
        let client = KubeClient::open(access).await.map_err(|error| failed(&error))?;
        let (scope, replica) = (AdoptionScope::Named, String::new());
        let adopt = AdoptionSettings { scope, namespace, replica, registration };
        Ok(Self { client, adopt, waits_for: String::new() })
    }

    async fn leases(&self) -> Result<Vec<Lease>, String> {
        self.adopt.read_leases(&self.client).await.map_err(|error| failed(&error))
    }

    async fn lists(&self) -> Result<Vec<(HookType, Vec<Value>)>, String> {
        let mut lists = Vec::new();
        for hook_type in [HookType::Validating, HookType::Mutating] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{}", WebhookKey::resource(hook_type));
            let list = self.client.list(&path).await.map_err(|error| failed(&error))?;
            lists.push((hook_type, list.items));
        }
        Ok(lists)
    }

    async fn seen(&self, wanted: &AdoptionScope, leases: &[Lease]) -> Result<Vec<SeenWebhook>, String> {
        let wishes = leases.iter().find(|lease| lease.is_leader()).map(Lease::requests).unwrap_or_default();
        let lists = self.lists().await?;
        let adopt = AdoptionSettings { scope: wanted.clone(), ..self.adopt.clone() };
        let judging = tokio::task::spawn_blocking(move || adopting::judged(&lists, &adopt, &wishes));
        judging.await.map_err(|error| format!("judging the webhooks failed: {error}; report this bug"))
    }

    /// State of each webhook, a line each, and a summary.
    pub(super) async fn plan(&self, wanted: &AdoptionScope) -> Result<String, String> {
        let version = self.client.get("/version").await.map_err(|error| failed(&error))?;
        let leases = self.leases().await?;
        let leader = leases.iter().find(|lease| lease.is_leader());
        let status = leader.map(Lease::status).unwrap_or_default();
        let mut told = String::new();
        let (mut taken, mut can, mut left) = (0, 0, 0);
        for seen in self.seen(wanted, &leases).await? {
            let key = seen.standing.key.to_string();
            let against = seen.against().map(ToString::to_string);
            // The replicas know more: fights, and who does not call it.
            let from_leader = status.iter().find(|[name, state, reason]| {
                let known = !reason.is_empty() && !reason.starts_with(NOT_SELECTED) && !reason.starts_with(RELEASED);
                *name == key && matches!(&**state, "left" | "giving back") && known
            });
            let old = version_without_conditions(&version)
                .map(|version| format!("the apiserver ({version}) knows no match conditions"));
            let uncalled = uncalled(&seen, &leases, SystemTime::now());
            let word = match (&seen.standing.carries, &against) {
                (true, _) if uncalled.is_some() => "NOT CALLED",
                (true, None) => {
                    taken += 1;
                    "taken"
                }
                (true, Some(_)) => "to be given back",
                (false, None) if old.is_none() && from_leader.is_none() => {
                    can += 1;
                    "can be taken"
                }
                (false, _) => {
                    left += 1;
                    "left"
                }
            };
            let why = uncalled.or(against).or(old).or_else(|| from_leader.map(|[_, _, reason]| reason.clone()));
            // Writing to a String cannot fail.
            let _ = match why {
                Some(why) => writeln!(told, "{word:<16}  {key}: {why}"),
                None => writeln!(told, "{word:<16}  {key}"),
            };
        }
        let replicas = leases.iter().filter(|lease| !lease.is_leader()).count();
        let replicas = counted(replicas, "replica");
        let _ = writeln!(told, "{taken} taken, {can} can be taken, {left} left; {replicas} with --adopt");
        Ok(told)
    }

    /// State of webhooks as the leader reports it, a line each, after those that some replicas may not call; `None`
    /// where there is nothing to report.
    pub(super) async fn standing(&self) -> Option<String> {
        let leases = self.leases().await.ok()?;
        let mut lines = String::new();
        for seen in self.seen(&AdoptionScope::All, &leases).await.unwrap_or_default() {
            if let Some(who) = uncalled(&seen, &leases, SystemTime::now()) {
                // Writing to a String cannot fail.
                let _ = writeln!(lines, "NOT CALLED    {}: {who}", seen.standing.key);
            }
        }
        let leader = leases.iter().find(|lease| lease.is_leader());
        let status = leader.map(Lease::status).unwrap_or_default();
        // Webhooks that are not selected are left out.
        for [key, state, reason] in &status {
            match reason.is_empty() {
                _ if state == "left" && reason.starts_with(NOT_SELECTED) => {}
                true => drop(writeln!(lines, "{state:<12}  {key}")),
                false => drop(writeln!(lines, "{state:<12}  {key}: {reason}")),
            }
        }
        let by = leader.map(|lease| format!("as {} wrote at {}", lease.replica(), lease.renewed));
        (!lines.is_empty())
            .then(|| format!("\nWEBHOOKS OF OTHERS, {}\n{lines}", by.unwrap_or_else(|| "now".to_owned())))
    }

    /// Changes the requests in the leader's lease, where the replicas read them.
    pub(super) async fn wish(&self, change: impl Fn(&mut AdoptionRequests)) -> Result<(), String> {
        let path = format!("{}/{LEADER_LEASE}", self.adopt.leases());
        for _ in 0..TRIES {
            let leases = self.leases().await?;
            let Some(leader) = leases.iter().find(|lease| lease.is_leader()) else {
                self.adopt.create_leader_lease(&self.client).await.map_err(|error| failed(&error))?;
                continue;
            };
            let mut wishes = leader.requests();
            change(&mut wishes);
            let mut patch = wishes.patch();
            if patch.to_string().len() > MOST_WISHES {
                return Err("too many names; give --all, or a selector to serve --adopt".to_owned());
            }
            patch["metadata"]["resourceVersion"] = leader.version.as_str().into();
            match self.client.patch(&path, "application/merge-patch+json", &patch).await {
                Ok(()) => return Ok(()),
                Err(KubeError::Unwritten { code: 409, .. }) => sleep(EVERY / 5).await,
                Err(error) => return Err(failed(&error)),
            }
        }
        Err("the lease of the replicas changes all the time; try again".to_owned())
    }

    /// Waits until every named webhook, or all, has the state that is wanted.
    pub(super) async fn wait(&mut self, names: &[String], within: Duration, wanted: State) -> Result<String, String> {
        let began = Instant::now();
        let mut renewed: Option<(String, Instant)> = None;
        let mut leads = false;
        loop {
            let leases = self.leases().await?;
            let leader = leases.iter().find(|lease| lease.is_leader());
            let state = leader.map(|lease| format!("{} {}", lease.holder, lease.renewed)).unwrap_or_default();
            if renewed.as_ref().is_none_or(|(known, _)| *known != state) {
                leads = renewed.is_some();
                renewed = Some((state, Instant::now()));
            }
            let alone = leader.is_none_or(|lease| lease.holder.is_empty())
                || !leases.iter().any(|lease| lives(lease, SystemTime::now()))
                || renewed.as_ref().is_some_and(|(_, at)| at.elapsed() > LEADERLESS);
            let mut seen = self.seen(&AdoptionScope::All, &leases).await?;
            seen.retain(|seen| names.is_empty() || is_named(&seen.standing, names));
            if let Some(missing) =
                names.iter().find(|name| !seen.iter().any(|seen| is_named(&seen.standing, &[(*name).clone()])))
            {
                return Err(format!("there is no webhook configuration {missing} with webhooks in it"));
            }
            let (done, open): (Vec<_>, Vec<_>) =
                seen.into_iter().partition(|seen| seen.standing.carries == (wanted == State::Taken));
            if wanted == State::Released && alone && !open.is_empty() && began.elapsed() < within {
                let webhooks = counted(open.len(), "webhook");
                self.say(format!("no replica with --adopt is alive: removing the condition from {webhooks}"));
                give_back(&self.client, &open).await.map_err(|error| failed(&error))?;
                sleep(EVERY).await;
                continue;
            }
            let status = leader.map(Lease::status).unwrap_or_default();
            let own = |seen: &SeenWebhook| seen.unservable.clone().or_else(|| seen.objection.clone());
            let reason = |seen: &SeenWebhook| {
                let (key, own) = (seen.standing.key.to_string(), own(seen));
                let told = status.iter().find(|[name, state, _]| *name == key && state == "left");
                own.map(|own| own.to_string()).or_else(|| told.map(|[_, _, reason]| reason.clone()))
            };
            // Do not wait for webhooks that cannot be taken. One that the leader leaves for a while may still be.
            let waiting = open.iter().filter(|seen| wanted == State::Released || own(seen).is_none()).count();
            let over = began.elapsed() >= within;
            // For a moment, the leader's report is older than the request.
            let settled = began.elapsed() > Duration::from_secs(5);
            if open.is_empty() || over || settled && (waiting == 0 || alone) {
                if wanted == State::Released && open.is_empty() {
                    self.let_go(&done, names.is_empty() && alone).await?;
                }
                return end(&done, &open, (wanted, names.is_empty(), alone), reason);
            }
            self.say(match leader.filter(|_| leads) {
                Some(leader) => {
                    let act = if wanted == State::Taken { "take" } else { "give back" };
                    format!("waiting for {} to {act} {}", leader.replica(), counted(open.len(), "webhook"))
                }
                None => {
                    let longest = humantime::format_duration(LEADERLESS);
                    let then = match wanted {
                        State::Taken => "this command ends",
                        State::Released => "this command gives back by itself",
                    };
                    format!("waiting for a sign of life of a replica with --adopt; without one, {then} after {longest}")
                }
            });
            sleep(EVERY).await;
        }
    }

    /// Prints on stderr what the command waits for, once.
    fn say(&mut self, what: String) {
        if self.waits_for != what {
            // A reader that closed our stderr ends nothing.
            let _ = writeln!(io::stderr(), "{what}");
            self.waits_for = what;
        }
    }

    /// Waits until every apiserver has heard that it calls the webhooks, and no replica does any more. Then our registrations
    /// may be deleted, where nobody else sees to that.
    async fn let_go(&mut self, given_back: &[SeenWebhook], alone: bool) -> Result<(), String> {
        let held_back = given_back.iter().map(|seen| seen.in_flight).max().unwrap_or_default();
        let goes_on = humantime::format_duration(Duration::from_secs((GOES_ON + held_back).as_secs()));
        self.say(format!("given back; waiting {goes_on} until every apiserver has heard of it"));
        sleep(GOES_ON + held_back).await;
        if !alone {
            return Ok(());
        }
        for (hook_type, items) in self.lists().await? {
            let ours = items.iter().filter(|item| self.adopt.is_our_own(item));
            for registered in ours.filter_map(|item| OwnRegistration::of(hook_type, item)).filter(|it| it.guarded) {
                change_finalizer(&self.client, &FinalizerChange { registration: registered, add: false })
                    .await
                    .map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }
}

/// Message about a webhook that carries the condition and may be called by nobody: our registration does not send all that
/// it wants, or live replicas do not claim it; `None` where neither is so. A replica that has not renewed its lease for long
/// is not counted; where none is left, the message says so.
fn uncalled(seen: &SeenWebhook, leases: &[Lease], now: SystemTime) -> Option<String> {
    let SeenWebhook { standing, unsent, objection, .. } = seen;
    if !standing.carries {
        return None;
    }
    let replicas: Vec<_> = leases.iter().filter(|lease| !lease.is_leader() && lives(lease, now)).collect();
    let calls = |lease: &Lease| lease.claims().is_some_and(|claims| claims.ids.contains(&standing.id));
    let silent = replicas.iter().filter(|lease| !calls(lease));
    let silent: Vec<_> = silent.map(|lease| lease.replica()).collect();
    let who = match (replicas.is_empty(), silent.is_empty()) {
        (true, _) => {
            "no replica with --adopt has renewed its lease in the last minute: nobody may call it; start one, or \
                      run gatepost release --all"
                .to_owned()
        }
        (false, false) => format!("{} may not call it", silent.join(", ")),
        (false, true) if *unsent => {
            let gap = objection.as_ref().filter(|reason| matches!(reason, Reason::Uncovered(_)));
            gap.map_or_else(
                || "Gatepost's registration does not send all that it wants".to_owned(),
                ToString::to_string,
            )
        }
        (false, true) => return None,
    };
    Some(format!("it carries the condition {CONDITION}, and {who}"))
}

fn is_named(standing: &WebhookStanding, names: &[String]) -> bool {
    let WebhookKey { hook_type, configuration, .. } = &standing.key;
    let full = format!("{}/{configuration}", WebhookKey::word(*hook_type));
    names.iter().any(|name| name == configuration || *name == full)
}

fn end(
    done: &[SeenWebhook],
    open: &[SeenWebhook],
    (wanted, all, alone): (State, bool, bool),
    reason: impl Fn(&SeenWebhook) -> Option<String>,
) -> Result<String, String> {
    let word = if wanted == State::Taken { "taken" } else { "given back" };
    let mut told = String::new();
    for seen in done {
        let _ = writeln!(told, "{word}  {}", seen.standing.key);
    }
    let nobody = "no replica that serves with --adopt is alive".to_owned();
    let why = |seen: &SeenWebhook| match reason(seen) {
        _ if alone && wanted == State::Taken => nobody.clone(),
        Some(why) => why,
        None => "not in time; `gatepost adopt --plan` shows how it stands".to_owned(),
    };
    // Of all, what cannot be taken is no failure.
    let refused: Vec<_> =
        open.iter().filter(|seen| !all || wanted == State::Released || reason(seen).is_none()).collect();
    if !refused.is_empty() {
        let lines = refused.iter().map(|seen| format!("not {word}: {}: {}", seen.standing.key, why(seen)));
        let lines = lines.take(20).collect::<Vec<_>>().join("\n");
        return Err(lines);
    }
    for seen in open {
        let _ = writeln!(told, "left  {}: {}", seen.standing.key, why(seen));
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adopt::{Claims, replica_lease, standings};
    use crate::cli::adopt::alone::SILENT;

    #[test]
    fn who_does_not_call_what_the_apiserver_does_not_is_told() {
        let condition = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
        let object = json!({"metadata": {"name": "c"}, "webhooks": [{"name": "w", "matchConditions": condition}]});
        let standing = standings(HookType::Validating, &object).remove(0);
        let mut seen = SeenWebhook {
            standing: standing.clone(),
            unservable: None,
            objection: None,
            unsent: false,
            wanted: Ok(()),
            asks_authorizer: false,
            guarded: true,
            in_flight: Duration::ZERO,
        };
        let lease = |holder: &str, calls: bool| {
            let ids = calls.then(|| standing.id.clone()).into_iter().collect();
            Lease::of(&replica_lease(holder, "2026-11-21T00:00:00.000000Z", Some(&Claims { epoch: 1, ids }))).unwrap()
        };
        let began = humantime::parse_rfc3339_weak("2026-11-21T00:00:10Z").unwrap();
        let uncalled = |leases: &[Lease]| uncalled(&seen, leases, began);
        assert!(uncalled(&[]).unwrap().contains("nobody may call it"));
        assert_eq!(uncalled(&[lease("a/1", true), lease("b/1", true)]), None);
        assert!(uncalled(&[lease("a/1", true), lease("b/1", false)]).unwrap().ends_with("and b may not call it"));
        let later = super::uncalled(&seen, &[lease("a/1", true)], began + SILENT);
        assert!(later.unwrap().contains("nobody may call it"), "whatever it said");
        seen.unsent = true;
        seen.objection = Some(Reason::Uncovered("a gap".to_owned()));
        let told = super::uncalled(&seen, &[lease("a/1", true)], began);
        assert!(told.unwrap().contains("a gap"), "although all replicas would call it");
        seen.standing.carries = false;
        assert_eq!(super::uncalled(&seen, &[lease("a/1", true)], began), None, "the apiserver calls it");
    }
}
