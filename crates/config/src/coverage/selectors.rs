//! Compares selectors and rules, so that an entry of a registration excludes no request that a hook selects.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::NAME_LABEL;
use gatepost_api::{
    Hook, Operation, Scope, Selector, builtin, registration::EXCLUDED_NAMESPACES_ANNOTATION, selector::Requirement,
};

/// Returns true if all that meets the selector also meets the requirement, as far as the two can be compared.
pub fn implies(selector: &Selector, requirement: &Requirement) -> bool {
    let holds_of = |value: &str| match requirement {
        Requirement::Is(_, wanted) => **wanted == *value,
        Requirement::In(_, wanted) => wanted.iter().any(|wanted| **wanted == *value),
        Requirement::NotIn(_, not) => !not.iter().any(|not| **not == *value),
        Requirement::Exists(_) => true,
        Requirement::DoesNotExist(_) => false,
    };
    let own = selector.0.iter().filter(|own| own.key() == requirement.key());
    own.into_iter().any(|own| match (own, requirement) {
        (Requirement::Is(_, value), _) => holds_of(value),
        (Requirement::In(_, values), _) => values.iter().all(|value| holds_of(value)),
        (Requirement::NotIn(_, own), Requirement::NotIn(_, not)) => not.iter().all(|value| own.contains(value)),
        (Requirement::DoesNotExist(_), Requirement::NotIn(..) | Requirement::DoesNotExist(_)) => true,
        (Requirement::Exists(_), Requirement::Exists(_)) => true,
        _ => false,
    })
}

/// Returns true if all that meets `selector` also meets `other`, as far as the two can be compared.
pub fn is_within(selector: &Selector, other: &Selector) -> bool {
    other.0.iter().all(|requirement| implies(selector, requirement))
}

/// Returns a selector that matches every object that any of these matches.
pub fn common(selectors: &[&Selector]) -> Selector {
    let Some((first, others)) = selectors.split_first() else { return Selector::default() };
    let all = |requirement: &Requirement| others.iter().all(|other| implies(other, requirement));
    let kept = first.0.iter().filter_map(|requirement| match requirement {
        Requirement::NotIn(key, values) => {
            let one = |value: &str| Requirement::NotIn(key.clone(), vec![value.into()]);
            let values: Vec<_> = values.iter().filter(|value| all(&one(value))).cloned().collect();
            (!values.is_empty()).then(|| Requirement::NotIn(key.clone(), values))
        }
        other => all(other).then(|| other.clone()),
    });
    Selector(kept.collect())
}

/// Returns the selector with these namespaces excluded.
pub fn without(selector: &Selector, namespaces: &[String]) -> Selector {
    let mut selector = selector.clone();
    if namespaces.is_empty() {
        return selector;
    }
    let known = selector.0.iter_mut().find_map(|requirement| match requirement {
        Requirement::NotIn(key, values) if **key == *NAME_LABEL => Some(values),
        _ => None,
    });
    let mut values: Vec<Box<str>> = namespaces.iter().map(|name| name.as_str().into()).collect();
    match known {
        Some(known) => {
            known.append(&mut values);
            known.sort_unstable();
            known.dedup();
        }
        None => {
            values.sort_unstable();
            values.dedup();
            selector.0.push(Requirement::NotIn(NAME_LABEL.into(), values));
        }
    }
    selector
}

/// Returns the names of the namespaces that the selector excludes; `None` if it has any other requirement.
pub fn names_left_out(selector: &Selector) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    for requirement in &selector.0 {
        match requirement {
            Requirement::NotIn(key, values) if **key == *NAME_LABEL => names.extend(values.iter().map(AsRef::as_ref)),
            _ => return None,
        }
    }
    Some(names)
}

/// Returns the namespaces that a registration excludes on purpose, ascending: by name, in every entry and, if it has
/// the annotation [`EXCLUDED_NAMESPACES_ANNOTATION`], in its list.
pub fn never_sent<'a>(registration: &Value, entries: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let listed = registration["metadata"]["annotations"][EXCLUDED_NAMESPACES_ANNOTATION].as_str();
    let listed = listed.map(|names| names.split(',').map(str::trim).collect::<BTreeSet<_>>());
    let left_out = |entry: &Value| {
        let requirements = entry["namespaceSelector"]["matchExpressions"].as_array().into_iter().flatten();
        let by_name = requirements.filter(|it| it["key"] == NAME_LABEL && it["operator"] == "NotIn");
        let names = by_name.flat_map(|it| it["values"].as_array().into_iter().flatten());
        names.filter_map(|name| name.as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
    };
    let all = entries.into_iter().map(left_out).reduce(|one, other| one.intersection(&other).cloned().collect());
    let meant = |name: &String| listed.as_ref().is_none_or(|listed| listed.contains(name.as_str()));
    all.unwrap_or_default().into_iter().filter(meant).collect()
}

/// Groups whose resources every apiserver since 1.25 serves only in v1: for these, "*" and "v1" are equal.
const ONLY_V1: [&str; 6] = ["", "apps", "batch", "policy", "rbac.authorization.k8s.io", "scheduling.k8s.io"];

/// The part of a rule for one group and one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Atom {
    /// API group; `*` is any.
    pub group: Box<str>,
    /// Resource, with its subresource after a slash; `*` is any.
    pub resource: Box<str>,
    /// Scope, as written.
    pub scope: &'static str,
    /// API versions; `*` is any.
    pub versions: BTreeSet<Box<str>>,
    /// Operations, as written.
    pub operations: BTreeSet<&'static str>,
}

/// Returns the atoms of a hook's rules.
pub fn atoms_of(hook: &Hook) -> Vec<Atom> {
    let mut atoms = Vec::new();
    for rule in &hook.rules {
        for (group, resource) in rule.api_groups.iter().flat_map(|g| rule.resources.iter().map(move |r| (g, r))) {
            atoms.push(Atom {
                group: group.clone(),
                resource: resource.clone(),
                scope: rule.scope.as_str(),
                versions: versions(group, &rule.api_versions),
                operations: rule.operations.iter().map(|operation| operation.as_str()).collect(),
            });
        }
    }
    atoms
}

fn versions(group: &str, written: &[Box<str>]) -> BTreeSet<Box<str>> {
    let has = |version: &str| written.iter().any(|written| **written == *version);
    match (has("*"), has("v1")) {
        (any, one) if (any || one) && ONLY_V1.contains(&group) => BTreeSet::from(["v1".into()]),
        (true, _) => BTreeSet::from(["*".into()]),
        _ => written.iter().cloned().collect(),
    }
}

impl Atom {
    /// Returns an atom that matches every request, in any version.
    pub fn everything() -> Self {
        Self {
            group: "*".into(),
            resource: "*/*".into(),
            scope: Scope::Any.as_str(),
            versions: BTreeSet::from(["*".into()]),
            operations: Operation::ALL.map(Operation::as_str).into(),
        }
    }

    /// Returns true if both match some request, and take it in different versions.
    pub fn contradicts(&self, other: &Self) -> bool {
        !self.agrees_on_versions(other) && self.overlaps(other)
    }

    /// Returns true if both match some request, whatever the version.
    pub fn overlaps(&self, other: &Self) -> bool {
        meet(&self.group, &other.group)
            && meet(self.resource().0, other.resource().0)
            && meet(self.resource().1, other.resource().1)
            && meet(self.scope, other.scope)
            && !self.operations.is_disjoint(&other.operations)
    }

    /// Returns true if both match some request in versions that overlap and differ: a request of yet another version
    /// may be sent for each of the two, in a version that both take.
    pub fn may_be_sent_twice(&self, other: &Self) -> bool {
        let any = [self, other].iter().any(|atom| atom.versions.contains("*"));
        self.contradicts(other) && !any && !self.shared_versions(other).is_empty()
    }

    /// Returns true if both match the same objects in different groups. An atom of any group matches all served groups.
    pub fn shares_objects_with(&self, other: &Self) -> bool {
        let groups_differ = |groups: &[&str; 2]| match (&*self.group, &*other.group) {
            ("*", named) | (named, "*") => groups.contains(&named) && !groups.contains(&builtin::UNSERVED_GROUP),
            (one, another) => groups.contains(&one) && groups.contains(&another),
        };
        self.group != other.group
            && !self.operations.is_disjoint(&other.operations)
            && meet(self.scope, other.scope)
            && builtin::SHARED.iter().any(|(resource, groups)| {
                groups_differ(groups) && [self, other].iter().all(|atom| within(resource, atom.resource().0))
            })
    }

    /// Returns true if `other` also sends objects of this atom unconverted in another group, in which none of `own`
    /// takes them. `own` are all atoms of the same hooks.
    pub fn is_unconverted_by(&self, other: &Self, own: &[Self]) -> bool {
        let takes_it_there = |atom: &Self| atom.shares_objects_with(self) && atom.is_within(other);
        self.shares_objects_with(other) && !own.iter().any(takes_it_there)
    }

    /// Returns true if `other` matches every request that this atom matches, in the same version.
    pub fn is_within(&self, other: &Self) -> bool {
        self.agrees_on_versions(other) && self.is_sent_by(other)
    }

    /// Returns true if `other` matches every request that this atom matches, whatever the version.
    pub fn is_sent_by(&self, other: &Self) -> bool {
        within(&self.group, &other.group)
            && within(self.resource().0, other.resource().0)
            && within(self.resource().1, other.resource().1)
            && within(self.scope, other.scope)
            && self.operations.is_subset(&other.operations)
    }

    /// Splits the atom by operation.
    pub fn by_operation(&self) -> impl Iterator<Item = Self> {
        self.operations.iter().map(|operation| Self { operations: BTreeSet::from([*operation]), ..self.clone() })
    }

    /// Returns a noun for messages, such as `CREATE of pods`.
    pub fn noun(&self) -> String {
        let operations: Vec<_> = self.operations.iter().copied().collect();
        let (operations, resource) = (operations.join(", "), &self.resource);
        match &*self.group {
            "" => format!("{operations} of {resource}"),
            "*" => format!("{operations} of {resource} in every group"),
            group => format!("{operations} of {resource}.{group}"),
        }
    }

    /// Returns true if `other` takes all versions of this atom.
    pub fn names_no_more_than(&self, other: &Self) -> bool {
        self.versions.iter().all(|version| other.takes(version))
    }

    /// Returns true if both take the same versions, as far as their groups serve several.
    pub fn agrees_on_versions(&self, other: &Self) -> bool {
        let only_v1 = [self, other].iter().any(|atom| ONLY_V1.contains(&&*atom.group));
        self.versions == other.versions || (only_v1 && self.takes("v1") && other.takes("v1"))
    }

    /// Returns the versions that both take; `*` if both take any.
    pub fn shared_versions<'a>(&'a self, other: &'a Self) -> BTreeSet<&'a str> {
        match (self.versions.contains("*"), other.versions.contains("*")) {
            (true, _) => other.versions.iter().map(AsRef::as_ref).collect(),
            (_, true) => self.versions.iter().map(AsRef::as_ref).collect(),
            _ => self.versions.intersection(&other.versions).map(AsRef::as_ref).collect(),
        }
    }

    /// Returns the group, the resource and the versions, as written.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        [&self.group, &self.resource].into_iter().chain(&self.versions).map(AsRef::as_ref)
    }

    /// Returns true if the atom has this version, or any.
    pub fn takes(&self, version: &str) -> bool {
        self.versions.contains("*") || self.versions.contains(version)
    }

    /// Returns the resource and the subresource; "" if it has none.
    pub fn resource(&self) -> (&str, &str) {
        self.resource.split_once('/').unwrap_or((&self.resource, ""))
    }
}

fn meet(one: &str, other: &str) -> bool {
    within(one, other) || other == "*" || one == "*"
}

fn within(one: &str, other: &str) -> bool {
    other == "*" || one == other
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is(key: &str, value: &str) -> Requirement {
        Requirement::Is(key.into(), value.into())
    }

    fn not(key: &str, values: &[&str]) -> Requirement {
        Requirement::NotIn(key.into(), values.iter().map(|value| (*value).into()).collect())
    }

    fn selector(requirements: &[Requirement]) -> Selector {
        Selector(requirements.to_vec())
    }

    #[test]
    fn a_narrower_selector_implies_a_wider_one() {
        let exists = Requirement::Exists("a".into());
        let absent = Requirement::DoesNotExist("a".into());
        for (own, wanted, implied) in [
            (is("a", "1"), is("a", "1"), true),
            (is("a", "1"), is("a", "2"), false),
            (is("a", "1"), not("a", &["2"]), true),
            (is("a", "1"), not("a", &["1", "2"]), false),
            (is("a", "1"), exists.clone(), true),
            (is("a", "1"), is("b", "1"), false),
            (not("a", &["1", "2"]), not("a", &["1"]), true),
            (not("a", &["1"]), not("a", &["1", "2"]), false),
            (absent.clone(), not("a", &["1"]), true),
            (absent.clone(), absent.clone(), true),
            (exists.clone(), absent, false),
            (exists.clone(), exists, true),
        ] {
            assert_eq!(implies(&selector(std::slice::from_ref(&own)), &wanted), implied, "{own} {wanted}");
        }
    }

    #[test]
    fn what_all_leave_out_is_left_out() {
        let (a, b) =
            (selector(&[not(NAME_LABEL, &["x", "y"]), is("t", "1")]), selector(&[not(NAME_LABEL, &["y", "z"])]));
        assert_eq!(common(&[&a, &b]), selector(&[not(NAME_LABEL, &["y"])]));
        assert_eq!(common(&[&a, &a]), a);
        assert_eq!(common(&[&a, &Selector::default()]), Selector::default());
        let one = selector(&[is(NAME_LABEL, "shop")]);
        assert_eq!(
            common(&[&selector(&[not(NAME_LABEL, &["kube-system"])]), &one]),
            selector(&[not(NAME_LABEL, &["kube-system"])])
        );
    }

    #[test]
    fn names_that_all_entries_leave_out_are_left_out_by_the_registration() {
        let entry = |requirements: Value| json!({"namespaceSelector": {"matchExpressions": requirements}});
        let not = |values: &[&str]| json!({"key": NAME_LABEL, "operator": "NotIn", "values": values});
        let labelled = json!({"key": "team", "operator": "NotIn", "values": ["c"]});
        let only = json!({"key": NAME_LABEL, "operator": "In", "values": ["c"]});
        let one = entry(json!([not(&["c", "a"]), labelled, not(&["b"])]));
        for (entries, expected) in [
            (vec![one.clone()], &["a", "b", "c"][..]),
            (vec![one.clone(), entry(json!([not(&["d", "b", "a"])]))], &["a", "b"]),
            (vec![one.clone(), json!({})], &[]),
            (vec![entry(json!([labelled, only]))], &[]),
            (vec![], &[]),
        ] {
            assert_eq!(never_sent(&Value::Null, &entries), expected, "{entries:?}");
        }
        let listed = json!({"metadata": {"annotations": {EXCLUDED_NAMESPACES_ANNOTATION: "d,c, a"}}});
        assert_eq!(never_sent(&listed, [&one]), ["a", "c"], "as far as it is so");
    }

    #[test]
    fn names_are_added_to_those_that_are_left_out_already() {
        let both = without(&selector(&[not(NAME_LABEL, &["b"])]), &["a".to_owned(), "b".to_owned()]);
        assert_eq!(both, selector(&[not(NAME_LABEL, &["a", "b"])]));
        assert_eq!(names_left_out(&both), Some(vec!["a", "b"]));
        assert_eq!(names_left_out(&selector(&[is("a", "1")])), None);
        assert_eq!(names_left_out(&Selector::default()), Some(vec![]));
        assert_eq!(without(&Selector::default(), &[]), Selector::default());
    }
}
