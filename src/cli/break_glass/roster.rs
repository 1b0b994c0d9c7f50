//! Roster: the hooks and initializers that a sidecar would let requests past, by name.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::timeout;

use crate::{
    replicas::{AdminUrl, HookStanding},
    rotate::{OnHazard, candidate::CandidateCache},
    snapshot::{LastGoodDocuments, nearest_words},
    source::{SourceLocation, kubernetes::ObjectSelection},
};

/// An emergency does not wait longer for the names.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most names listed in an error where none is similar.
const MOST_LISTED: usize = 8;

/// Source of the names.
#[derive(Debug)]
pub(super) enum Roster {
    /// In the source that sidecars read.
    Source(SourceLocation),
    /// In the sidecar at this admin address.
    Sidecar(AdminUrl),
}

/// Names of hooks and initializers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    known: BTreeSet<String>,
    /// Reason why there may be more than these.
    gap: Option<String>,
}

/// A name that no hook or initializer has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// There is no such hook or initializer; what to do.
    Unknown(String),
    /// It cannot be determined; why.
    Doubtful(String),
}

impl Roster {
    /// The names that are there now.
    pub(super) async fn names(self) -> Names {
        match self {
            Self::Source(place) => of_source(place).await,
            Self::Sidecar(admin) => of_sidecar(&admin).await,
        }
    }
}

impl Names {
    fn unknown(gap: String) -> Self {
        Self { known: BTreeSet::new(), gap: Some(gap) }
    }

    /// The first of the wanted names that no hook or initializer has.
    pub(super) fn missing(&self, wanted: &[String]) -> Option<Missing> {
        let missing = wanted.iter().find(|name| !self.known.contains(*name))?;
        if let Some(gap) = &self.gap {
            return Some(Missing::Doubtful(format!(
                "cannot find out whether there is a hook or initializer named {missing:?}: {gap}"
            )));
        }
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let near = nearest_words(missing, &known);
        let fix = match (near.is_empty(), known.len()) {
            (false, _) => format!("did you mean {}?", near.join(" or ")),
            (true, 0) => "there is no hook or initializer at all".to_owned(),
            (true, count) => {
                let (some, more) =
                    (known.get(..MOST_LISTED).unwrap_or(&known).join(", "), count.saturating_sub(MOST_LISTED));
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("there are {some}{more}")
            }
        };
        Some(Missing::Unknown(format!(
            "there is no hook or initializer named {missing:?}, so nothing is opened; {fix}"
        )))
    }
}

async fn of_source(place: SourceLocation) -> Names {
    let SourceLocation::Kubernetes(cluster) = &place else { return read(&place).await };
    // Sidecars may read either kind of object, or both; these flags need not say which.
    let both = cluster.objects.configurations && cluster.objects.webhooks;
    let all = ObjectSelection { configurations: true, webhooks: true };
    let names =
        read(&SourceLocation::Kubernetes(crate::source::KubernetesLocation { objects: all, ..cluster.clone() })).await;
    match &names.gap {
        Some(gap) if names.known.is_empty() && !both => {
            let gap = gap.clone();
            Names { gap: Some(gap), ..read(&place).await }
        }
        _ => names,
    }
}

async fn read(place: &SourceLocation) -> Names {
    let reading = async {
        let mut source = place.open().await?;
        source.read().await
    };
    let contents = match timeout(PATIENCE, reading).await {
        Ok(Ok(contents)) => contents,
        Ok(Err(error)) => return Names::unknown(error.to_string()),
        Err(_) => return Names::unknown(format!("{place} gives no answer")),
    };
    match CandidateCache::default().with_authorizer(true).candidate(
        &contents,
        OnHazard::Off,
        Some(&LastGoodDocuments::default()),
    ) {
        Ok(candidate) => Names {
            known: {
                let snapshot = &candidate.snapshot;
                let initializers = snapshot.initializers().iter().flat_map(|entry| &entry.initializers);
                let hooks = snapshot.hooks.iter().map(|hook| &hook.name);
                hooks.chain(initializers.map(|one| &one.name)).map(ToString::to_string).collect()
            },
            gap: candidate.quarantined.first().map(|held| format!("{} cannot be served, and may hold one", held.file)),
        },
        Err(_) => Names::unknown(format!("the configuration of {place} has problems")),
    }
}

async fn of_sidecar(admin: &AdminUrl) -> Names {
    match admin.report_and_initializers(None, PATIENCE).await {
        Ok((report, initializers)) if report.generation > 0 => Names {
            known: {
                let hooks = report.hooks.into_iter().filter(|hook| hook.state != HookStanding::Gone);
                hooks.map(|hook| hook.name).chain(initializers).collect()
            },
            gap: (report.hooks_left_out > 0).then(|| format!("{admin} does not name all hooks")),
        },
        Ok(_) => Names::unknown(format!("the sidecar at {admin} has no configuration")),
        Err(why) => Names::unknown(format!("no answer from {admin}: {why}; is it another address? give --admin URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(known: &[&str], gap: Option<&str>) -> Names {
        Names { known: known.iter().map(|name| (*name).to_owned()).collect(), gap: gap.map(str::to_owned) }
    }

    fn missing(names: &Names, wanted: &[&str]) -> Option<Missing> {
        names.missing(&wanted.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_misspelt_name_is_refused_and_near_ones_are_named() {
        let all = names(&["no-latest.example.com", "no-latest2.example.com", "quota.example.com"], None);
        assert_eq!(missing(&all, &["quota.example.com", "no-latest.example.com"]), None);
        let Some(Missing::Unknown(message)) = missing(&all, &["quota.example.com", "no-latst.example.com"]) else {
            panic!("it passed")
        };
        let near = "did you mean no-latest.example.com or no-latest2.example.com?";
        assert!(
            message.contains("there is no hook or initializer named \"no-latst.example.com\"")
                && message.ends_with(near),
            "{message}"
        );
        let Some(Missing::Unknown(message)) = missing(&all, &["x"]) else { panic!("it passed") };
        assert!(
            message.ends_with("there are no-latest.example.com, no-latest2.example.com, quota.example.com"),
            "{message}"
        );
        let Some(Missing::Unknown(message)) = missing(&names(&[], None), &["x"]) else { panic!("it passed") };
        assert!(message.ends_with("there is no hook or initializer at all"), "{message}");
    }

    #[test]
    fn where_not_all_hooks_are_known_nothing_is_refused() {
        let some = names(&["a"], Some("b.yaml cannot be served, and may hold one"));
        assert_eq!(missing(&some, &["a"]), None);
        let Some(Missing::Doubtful(message)) = missing(&some, &["b"]) else { panic!("it was judged") };
        assert!(message.contains("b.yaml cannot be served"), "{message}");
    }

    #[tokio::test]
    async fn a_folder_lists_its_hooks_and_initializers_and_whether_these_are_all() {
        let folder = tempfile::tempdir().unwrap();
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    externalAdmissionHooks: [{name: one.x, rules: [], clientConfig: {url: 'grpc://127.0.0.1:1'}}]\n\
                    resourceInitializers: [{resource: pods, initializers: [{name: two.x, builtIn: {labels: {a: b}}}]}]\n";
        std::fs::write(folder.path().join("a.yaml"), text).unwrap();
        let roster = || Roster::Source(SourceLocation::File(folder.path().to_owned()));
        assert_eq!(roster().names().await, names(&["one.x", "two.x"], None));
        std::fs::write(folder.path().join("b.yaml"), "kind: Nonsense\n").unwrap();
        let gap = Some("b.yaml cannot be served, and may hold one");
        assert_eq!(roster().names().await, names(&["one.x", "two.x"], gap));
        std::fs::remove_file(folder.path().join("a.yaml")).unwrap();
        assert!(roster().names().await.gap.is_some());
    }
}
