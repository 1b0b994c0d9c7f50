//! Apiserver: storage, quota and Gatepost together; the reads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gatepost_api::initialization::{HiddenAs, HiddenObject, Visibility, hidden};
use gatepost_initializers::{ReadRepair, without_late_head};
use gatepost_wire::pb::{
    gatepost::v1::{ReadPolicyRequest, ReadPolicyResponse, ReadVerb, Visibility as Shown},
    k8s::io::api::authentication::v1::UserInfo,
};

use crate::{
    etcd::{Entry, Etcd, Failure},
    kind::Kind,
    object::{Object, Place},
    quota::Quota,
    refusal::Refusal,
    sidecar::Sidecars,
};

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct Apiserver {
    pub(crate) etcd: Etcd,
    pub(crate) quota: Quota,
    pub(crate) sidecars: Sidecars,
}

/// User and parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) user: UserInfo,
    /// `includeUninitialized=true`
    pub(crate) includes: bool,
    pub(crate) dry_run: bool,
    /// `?timeout=`
    pub(crate) timeout: Option<Duration>,
}

impl Caller {
    /// The apiserver itself, which does what Gatepost tells it.
    pub(crate) fn itself() -> Self {
        let user = UserInfo { username: Some("system:apiserver".into()), ..UserInfo::default() };
        Self { user, ..Self::default() }
    }
}

/// Visibility of one read, and its read repair.
pub(crate) struct Policy(pub(crate) ReadPolicyResponse);

impl Policy {
    pub(crate) fn shows(&self, object: &Object) -> bool {
        let visibility = match self.0.visibility() {
            Shown::Initialized => Visibility::Initialized,
            Shown::All => Visibility::All,
        };
        visibility.shows(object.is_initialized())
    }
}

impl Apiserver {
    /// Counts what is there.
    pub(crate) async fn count(&self) -> Result<(), Failure> {
        use gatepost_wire::pb::gatepost::v1::Charge;
        for kind in ["configmaps", "pods"].iter().filter_map(|resource| Kind::of(resource)) {
            for object in self.all(kind, "").await?.0 {
                let rest = if object.is_initialized() { Charge::Now } else { Charge::Nothing };
                for (charge, what) in [(Charge::Now, crate::quota::COUNT), (rest, crate::quota::REST)] {
                    let _ = self.quota.charge(charge, what, (None, Some(&object)), &[], &mut Default::default());
                }
            }
        }
        Ok(())
    }

    /// Asks what one read shows. Once a request.
    pub(crate) async fn policy(
        &self,
        verb: ReadVerb,
        caller: &Caller,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Policy {
        let request = ReadPolicyRequest {
            verb: verb.into(),
            user: Some(caller.user.clone()),
            group: String::new(),
            version: "v1".into(),
            resource: kind.resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            include_uninitialized: caller.includes,
        };
        Policy(self.sidecars.read_policy(request).await)
    }

    /// One object, whoever may see it.
    pub(crate) async fn stored(&self, place: &Place) -> Result<Option<Object>, Failure> {
        Ok(self.etcd.get(&place.key()).await?.as_ref().and_then(Object::of))
    }

    /// All of a kind in a namespace ("": in all), whoever may see them, and the revision at which they are so.
    pub(crate) async fn all(&self, kind: &Kind, namespace: &str) -> Result<(Vec<Object>, i64), Failure> {
        let below = Place::below(kind);
        let prefix = if namespace.is_empty() { below } else { format!("{below}{namespace}/") };
        let (entries, revision) = self.etcd.list(&prefix).await?;
        Ok((entries.iter().filter_map(|entry: &Entry| Object::of(entry)).collect(), revision))
    }

    /// GET.
    pub(crate) async fn get(&'static self, caller: &Caller, place: &Place) -> Result<Object, Refusal> {
        let policy = self.policy(ReadVerb::Get, caller, place.kind, &place.namespace, &place.name).await;
        let missing = || Refusal::not_found(place.kind.resource, &place.name);
        let mut object = self.stored(place).await?.ok_or_else(missing)?;
        if self.repair(&policy, &object).await {
            object = self.stored(place).await?.ok_or_else(missing)?;
        }
        if policy.shows(&object) {
            return Ok(object);
        }
        let (version, named) = (object.revision.to_string(), policy.0.hidden.clone().unwrap_or_default());
        // Without Gatepost: as it would say.
        let how = if named.code() == 404 { HiddenAs::NotFound } else { HiddenAs::Accepted };
        let (resource, name) = (place.kind.resource, &*place.name);
        let shown = HiddenObject { group: "", resource, name, uid: object.uid(), resource_version: &version };
        Err(Refusal(Box::new(hidden(how, shown))))
    }

    /// LIST.
    pub(crate) async fn list(
        &'static self,
        caller: &Caller,
        kind: &Kind,
        namespace: &str,
    ) -> Result<(Vec<Object>, i64), Refusal> {
        let policy = self.policy(ReadVerb::List, caller, kind, namespace, "").await;
        let (mut objects, mut revision) = self.all(kind, namespace).await?;
        let mut repaired = false;
        for object in &objects {
            repaired |= self.repair(&policy, object).await;
        }
        if repaired {
            (objects, revision) = self.all(kind, namespace).await?;
        }
        objects.retain(|object| policy.shows(object));
        Ok((objects, revision))
    }

    /// Read repair: removes the head of an object that nobody has initialized for very long. True where it has.
    async fn repair(&'static self, policy: &Policy, object: &Object) -> bool {
        let (Some(repair), Some(list)) = (&policy.0.repair, object.list()) else { return false };
        let created = object.json["metadata"]["creationTimestamp"].as_str().map(humantime::parse_rfc3339);
        let seconds =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().and_then(|age| i64::try_from(age.as_secs()).ok());
        let (Some(Ok(created)), now) = (created, SystemTime::now()) else { return false };
        let (Some(created), Some(now)) = (seconds(created), seconds(now)) else { return false };
        let rule =
            ReadRepair { older_than: Duration::from_secs(repair.older_than_seconds.into()), skew: Duration::ZERO };
        let must_act = |name: &str| repair.must_act.iter().any(|must| must == name);
        let Some(head) = rule.head(&list, (created, now), must_act) else { return false };
        self.remove_head(object, head).await.is_ok()
    }

    /// Removes the first entry of an object's list, while the object is as it is here.
    pub(crate) async fn remove_head(&'static self, object: &Object, head: &str) -> Result<(), Refusal> {
        let late = || Refusal::conflict(object.place.kind.resource, &object.place.name);
        let left = object.list().and_then(|list| without_late_head(&list, head)).ok_or_else(late)?;
        let json = crate::object::with_list(&object.json, &left.unwrap_or_default());
        self.update(&Caller::itself(), object.clone(), json).await.map(drop)
    }
}
