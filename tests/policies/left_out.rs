//! Cases that are decided differently than by kube-apiserver, in classes, each with the reason. A case that is here and
//! passes is a failure of the test.

/// Reasons, and the names of the cases.
pub(crate) const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "An object is read only as far as a configuration is merged into it: what else of it does not fit its type is no error.",
        &["mutate-crd-object-has-scalar", "mutate-crd-object-has-unknown"],
    ),
    ("Defaults are not set between two mutations.", &["mutate-defaults-between", "mutate-defaults-seen-by-next"]),
    ("A null in an apply configuration is refused in other words.", &["mutate-apply-null", "mutate-crd-null"]),
    (
        "An integer that is too large for its field is refused. kube-apiserver takes the lower bits.",
        &["mutate-apply-pod-large-double", "mutate-apply-pod-wrapped"],
    ),
    ("An unsigned integer of an apply configuration is like any other.", &["mutate-apply-pod-uint"]),
    (
        "The apiserver decodes a mutated object into its type, and refuses what does not fit, after the verdict.",
        &[
            "mutate-apply-custom-without-schema",
            "mutate-apply-custom-without-schema-ignore",
            "mutate-json-bad-pointer",
            "mutate-json-custom-without-schema",
            "mutate-json-unknown-field",
            "mutate-json-unknown-field-ignore",
            "mutate-json-wrong-type",
            "mutate-json-wrong-type-ignore",
            "upstream-jsonpatch-invalid-cel-initializer-field",
        ],
    ),
    (
        "An object in another version than the rules name is converted by the apiserver. Gatepost cannot convert: the policy fails, as its failure policy says.",
        &[
            "match-equivalent",
            "match-equivalent-authorizer",
            "match-equivalent-default",
            "match-equivalent-delete",
            "match-equivalent-old-object",
            "match-equivalent-two-policies",
            "mutate-equivalent",
            "upstream-matching-specific-rules-equivalent-match-prefer-apps",
            "upstream-matching-specific-rules-equivalent-match-prefer-extensions",
            "upstream-matching-specific-rules-match-miss",
            "upstream-matching-specific-rules-subresource-equivalent-match-prefer-apps",
            "upstream-matching-specific-rules-subresource-equivalent-match-prefer-extensions",
            "upstream-matching-specific-rules-subresource-equivalent-match-prefer-extensions-and-name",
            "upstream-matching-specific-rules-subresource-match-miss",
        ],
    ),
    (
        "The namespace of the request does not exist. Such requests are refused by NamespaceLifecycle before they arrive.",
        &[
            "failure-fail-namespace-missing",
            "failure-ignore-namespace-missing",
            "mutate-namespace-missing",
            "mutate-namespace-missing-ignore",
            "namespace-missing-allow-param",
            "namespace-missing-false-condition",
        ],
    ),
    (
        "Requests about the configuration of webhooks never reach a webhook, nor the plugin.",
        &["exempt-mutating-webhooks", "exempt-validating-webhooks"],
    ),
    (
        "The apiserver leaves out, or cuts, such warnings when it writes them. A verdict does so at once.",
        &["actions-warn-60-failures", "actions-warn-special-characters"],
    ),
    (
        "A patch that changes the identity of the object is refused.",
        &["mutate-json-change-kind", "mutate-json-change-name", "mutate-json-whole-document"],
    ),
    ("Documents that are refused here, and accepted by kube-apiserver.", &["variable-same-name"]),
    ("The param is an object of a Go type, whose absent fields upstream shows as present.", &["param-field-absent"]),
];
