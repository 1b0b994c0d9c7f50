//! Text of a plan.

use std::fmt::Write as _;

use serde_json::json;

use super::plan::{Plan, Planned};
use crate::{
    cli::yaml::yaml,
    snapshot::hazards::{Advice, LABEL},
};

/// Namespaces as `kubectl apply --server-side` takes them, and as a configuration does; what hooks should carry, in
/// comments.
pub(super) fn manifest(plan: &Plan) -> Result<String, String> {
    let mut text = String::from(
        "# Runlevels, by gatepost runlevels --print. Put them in force by one of\n\
         #   gatepost runlevels --apply\n\
         #   kubectl apply --server-side --field-manager=gatepost-runlevels -f FILE\n\
         # and keep the file beside the hooks, where gatepost check looks for the labels of namespaces.\n",
    );
    if !plan.unlabelled.is_empty() {
        let _ = writeln!(text, "# Without a runlevel: {}", plan.unlabelled.join(", "));
    }
    for planned in &plan.namespaces {
        if !planned.exists {
            let _ = writeln!(text, "# The cluster has no namespace {}.", planned.name);
            continue;
        }
        let document = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": planned.name, "labels": {LABEL: planned.level}},
        });
        let _ = write!(text, "---\n{}", yaml(&document)?);
    }
    for line in advice(&plan.hooks)?.lines() {
        let _ = writeln!(text, "{}", format!("# {line}").trim_end());
    }
    Ok(text)
}

/// One line of what was done.
pub(super) fn done(planned: &Planned) -> String {
    let Planned { name, level, was, exists } = planned;
    match (exists, was) {
        (false, _) => format!("absent      {name}: the cluster has no such namespace\n"),
        (true, Some(was)) if was == level => format!("unchanged   {name} {level}\n"),
        (true, Some(was)) => format!("relabelled  {name} {level} (was {was})\n"),
        (true, None) => format!("labelled    {name} {level}\n"),
    }
}

/// The selector of each hook, as a patch of its entry.
pub(super) fn advice(hooks: &[Advice]) -> Result<String, String> {
    let mut text = String::new();
    for Advice { hook, place, namespace, level, selector } in hooks {
        let home = namespace.as_ref().map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
        let _ = writeln!(text, "\nhook {hook:?}{home} has runlevel {level}; in its entry ({place}):");
        for line in yaml(&json!({"namespaceSelector": selector}))?.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    Ok(text)
}
