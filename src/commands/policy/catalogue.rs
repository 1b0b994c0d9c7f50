//! Catalogue: the templates of policies, which are the folders of `examples/policies/`.

/// A template: a policy, its binding and its test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    /// Name of the template, and of the policy in it.
    pub(super) name: &'static str,
    /// Names and contents of its files.
    pub(super) files: &'static [(&'static str, &'static str)],
}

macro_rules! template {
    ($name:literal) => {
        template!($name, "policy.yaml", "test.yaml")
    };
    ($name:literal, $($file:literal),+) => {
        Template {
            name: $name,
            files: &[$(($file, include_str!(concat!("../../../examples/policies/", $name, "/", $file)))),+],
        }
    };
}

/// Every template, by name.
pub(super) const TEMPLATES: &[Template] = &[
    template!("always-pull-images"),
    template!("build-by-strategy"),
    template!("cluster-resource-override"),
    template!("default-storage-class"),
    template!("defaults-by-label"),
    template!("deny-escalating-exec"),
    template!("deny-exec-on-privileged"),
    template!("external-ip-ranger"),
    template!("field-access"),
    template!("host-path-allow-list"),
    template!("image-limit-range"),
    template!("image-registries"),
    template!("limit-anti-affinity-topology"),
    template!("limit-ranger"),
    template!("namespace-environment"),
    template!("no-latest-tag", "pinned.yaml", "policy.yaml", "test.yaml"),
    template!("no-privileged-containers"),
    template!("owner-references-permission"),
    template!("pod-node-constraints"),
    template!("pod-node-selector"),
    template!("pod-security-baseline"),
    template!("pod-security-restricted"),
    template!("project-request-limit"),
    template!("protect-from-deletion"),
    template!("protected-labels"),
    template!("replica-limit"),
    template!("required-labels"),
    template!("restrict-tolerations"),
    template!("restricted-endpoints"),
    template!("run-once-duration"),
    template!("security-context-deny"),
    template!("service-injection"),
];

impl Template {
    /// Returns the template of that name.
    pub(super) fn find(name: &str) -> Option<Self> {
        TEMPLATES.iter().copied().find(|template| template.name == name)
    }

    /// Returns a sentence about the policy: the first of the comment that its file begins with.
    pub(super) fn sentence(&self) -> String {
        let text = self.files.iter().find(|(file, _)| *file == "policy.yaml").map_or("", |(_, text)| text);
        let comment = text.lines().map_while(|line| line.strip_prefix("# "));
        let comment = comment.collect::<Vec<_>>().join(" ");
        let end = comment.find(". ").map_or(comment.len(), |at| at + 1);
        comment[..end].to_owned()
    }

    /// Returns the files with another name of the policy.
    pub(super) fn renamed(&self, name: &str) -> impl Iterator<Item = (&'static str, String)> {
        self.files.iter().map(move |(file, text)| (*file, replaced(text, self.name, name)))
    }
}

/// Replaces a name where it stands alone, or before a hyphen, a slash or a dot.
fn replaced(text: &str, old: &str, new: &str) -> String {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '.' | '_');
    let (mut replaced, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(old) {
        let (before, behind) = (&rest[..at], &rest[at + old.len()..]);
        replaced.push_str(before);
        let is_inner = replaced.ends_with(is_part) || behind.starts_with(|sign: char| sign.is_ascii_alphanumeric());
        replaced.push_str(if is_inner { old } else { new });
        rest = behind;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_example_is_a_template() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies");
        let mut files = BTreeSet::new();
        for template in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
            let name = template.file_name().unwrap().to_str().unwrap().to_owned();
            for file in fs::read_dir(template).unwrap() {
                files.insert((name.clone(), file.unwrap().file_name().to_str().unwrap().to_owned()));
            }
        }
        let of = |template: &Template| {
            template.files.iter().map(|(file, _)| (template.name.to_owned(), (*file).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(TEMPLATES.iter().flat_map(of).collect::<BTreeSet<_>>(), files);
        assert!(TEMPLATES.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn every_template_has_a_description() {
        for template in TEMPLATES {
            let sentence = template.sentence();
            assert!(sentence.ends_with('.') && sentence.len() > 20, "{}: {sentence:?}", template.name);
        }
    }

    #[test]
    fn names_are_replaced_where_they_stand_alone() {
        let text = "a-b: a-b-binding 'a-b' no-a-b a-bc x.a-b a-b/key";
        assert_eq!(replaced(text, "a-b", "n"), "n: n-binding 'n' no-a-b a-bc x.a-b n/key");
    }
}
