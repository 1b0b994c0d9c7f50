//! Served condition: requests about which an apiserver goes on calling a webhook that Gatepost calls in its place.

use std::fmt;

use super::registration::{SERVED, SERVED_BUT_EXEMPT};

/// Most namespaces of one condition.
const MOST_NAMESPACES: usize = 100;

/// Beginning and end of the expression that is true in some namespaces, around their names. It asks what a
/// namespaceSelector looks at, so that each request is either sent to Gatepost or left to the apiserver: labels of the
/// object where a namespace is created or updated, and otherwise the namespace of the request
/// (`docs/reference/webhook-semantics.md` §4.3). It reads nothing that may be absent.
const NAMESPACES: (&str, &str) = (
    "(request.resource.resource == 'namespaces' && request.operation in ['CREATE', 'UPDATE'] && \
     (!has(request.subResource) || request.subResource == '') ? \
     (has(object.metadata.labels) && 'kubernetes.io/metadata.name' in object.metadata.labels ? \
     object.metadata.labels['kubernetes.io/metadata.name'] : '') : \
     (has(request.namespace) ? request.namespace : '')) in ['",
    "']",
);
const BETWEEN: &str = "', '";
const OR: &str = " || ";

/// Our match condition on a webhook of others, by the requests of which it is true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedCondition {
    /// True of resources about which Gatepost asks no hook.
    exempt: bool,
    /// Namespaces in which it is true, ascending.
    namespaces: Vec<Box<str>>,
}

impl ServedCondition {
    /// The condition of that name with that expression, where it is ours.
    pub fn of(name: &str, expression: &str) -> Option<Self> {
        let expression = expression.trim();
        if name != SERVED.0 {
            return None;
        }
        if expression == SERVED.1 {
            return Some(Self::default());
        }
        let (exempt, rest) = match expression.strip_prefix(SERVED_BUT_EXEMPT) {
            Some("") => return Some(Self { exempt: true, ..Self::default() }),
            Some(rest) => (true, rest.strip_prefix(OR)?),
            None => (false, expression),
        };
        let names = rest.strip_prefix(NAMESPACES.0)?.strip_suffix(NAMESPACES.1)?;
        let read = Self { exempt, ..Self::default() }.in_namespaces(names.split(BETWEEN));
        // Another order or a name twice means the same, but is not what we would write.
        (read.to_string() == expression).then_some(read)
    }

    /// The same, true or not of resources about which Gatepost asks no hook.
    #[must_use]
    pub fn of_exempt(self, exempt: bool) -> Self {
        Self { exempt, ..self }
    }

    /// The same, true in these namespaces alone. Names that no namespace can have are left out; of too many, all are.
    #[must_use]
    pub fn in_namespaces<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut namespaces: Vec<Box<str>> = names.into_iter().filter(|name| is_name(name)).map(Box::from).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        if namespaces.len() > MOST_NAMESPACES {
            namespaces.clear();
        }
        Self { namespaces, ..self }
    }

    /// Namespaces in which it is true.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(AsRef::as_ref)
    }
}

/// Can a namespace be called so? Nothing in such a name ends a text of an expression.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(fits)
}

impl fmt::Display for ServedCondition {
    /// The expression.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_namespaces = || {
            let (begin, end) = NAMESPACES;
            format!("{begin}{}{end}", self.namespaces.join(BETWEEN))
        };
        match (self.exempt, self.namespaces.is_empty()) {
            (false, true) => f.write_str(SERVED.1),
            (true, true) => f.write_str(SERVED_BUT_EXEMPT),
            (false, false) => f.write_str(&in_namespaces()),
            (true, false) => write!(f, "{SERVED_BUT_EXEMPT}{OR}{}", in_namespaces()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_of_ours_is_known_by_what_it_says() {
        for exempt in [false, true] {
            for names in [&[][..], &["kube-system"], &["gatepost", "kube-node-lease", "kube-system"]] {
                let condition = ServedCondition::default().of_exempt(exempt).in_namespaces(names.iter().copied());
                let text = condition.to_string();
                assert_eq!(condition.namespaces().collect::<Vec<_>>(), names);
                assert_eq!(ServedCondition::of(SERVED.0, &format!(" {text}\n")), Some(condition), "{text}");
                assert_eq!(ServedCondition::of("mine", &text), None);
                for other in [format!("{text} || true"), format!("true || {text}"), format!("!({text})")] {
                    assert_eq!(ServedCondition::of(SERVED.0, &other), None, "{other}");
                }
            }
        }
        let (begin, end) = NAMESPACES;
        for names in ["b', 'a", "a', 'a", "", "a'] || true || 'x' in ['b", "A"] {
            assert_eq!(ServedCondition::of(SERVED.0, &format!("{begin}{names}{end}")), None, "{names}");
        }
    }

    #[test]
    fn names_that_cannot_be_are_left_out_and_too_many_as_well() {
        let of = |names: &[&str]| ServedCondition::default().in_namespaces(names.iter().copied());
        assert_eq!(of(&["b", "a", "b", "", "A", "x'", &"n".repeat(64)]), of(&["a", "b"]));
        let many: Vec<_> = (0..=MOST_NAMESPACES).map(|number| format!("n{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!((of(&many), of(&many[1..]).namespaces().count()), (of(&[]), MOST_NAMESPACES));
    }
}
