//! Bindings of policies: params, and the effects of failed validations.

use std::sync::Arc;

use gatepost_api::{Enforcement, HookType, Selector, names};

use crate::{
    check::{self, Fault, Faults},
    document::BindingDocument,
    matching::MatchResources,
};

/// Effects of a failed validation. Upstream: `validationActions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// The request is rejected.
    pub deny: bool,
    /// The client is warned.
    pub warn: bool,
    /// The audit event has an annotation.
    pub audit: bool,
    /// True if the binding lists `Audit` first, which audit annotations repeat.
    pub audit_first: bool,
}

impl Actions {
    /// Returns the names of the effects, in the order in which the binding lists them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let audit = |is_first: bool| if self.audit && self.audit_first == is_first { Some("Audit") } else { None };
        let (deny, warn) = (self.deny.then_some("Deny"), self.warn.then_some("Warn"));
        [audit(true), deny, warn, audit(false)].into_iter().flatten()
    }
}

/// Params of a binding, by name or by labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamSelector {
    /// The object of this name.
    Name(Box<str>),
    /// Each object with such labels.
    Labels(Selector),
}

/// Error of a binding without params that must not be without, as upstream writes it.
pub const PARAMS_NOT_FOUND: &str = "no params found for policy binding with `Deny` parameterNotFoundAction";

/// Params of a binding. Upstream: `paramRef`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamRef {
    /// Which params.
    pub which: ParamSelector,
    /// Namespace of the params; `None` for the namespace of the request.
    pub namespace: Option<Box<str>>,
    /// True if the request is rejected if there are no params; otherwise the binding is then skipped.
    pub deny_if_not_found: bool,
}

/// A binding of a policy, checked. What most bindings lack is boxed, because there may be many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Name of the binding.
    pub name: Arc<str>,
    /// Kind of the policy.
    pub hook_type: HookType,
    /// Name of the policy.
    pub policy_name: Arc<str>,
    /// Params; without a `paramKind` of the policy they have no effect.
    pub param_ref: Option<Box<ParamRef>>,
    /// Requests that the binding is about; `None` for all of the policy.
    pub match_resources: Option<Box<MatchResources>>,
    /// Effects of a failed validation.
    pub actions: Actions,
    /// Enforcement that the binding's annotation asks for, in place of the policy's.
    pub enforcement: Option<Enforcement>,
}

const _: () = assert!(size_of::<Binding>() <= 64, "hundreds of thousands of bindings are to fit into memory");

impl Binding {
    /// Checks a binding as kube-apiserver does when it is created.
    ///
    /// # Errors
    /// All faults. Paths are relative to `spec`.
    pub fn checked(document: BindingDocument) -> Result<Self, Vec<Fault>> {
        let BindingDocument { name, hook_type, policy_name, param_ref, match_resources, actions } = document;
        let mut faults = Faults::default();
        if !names::is_dns_subdomain(&policy_name) {
            let fix = "write the name of a policy: lower-case letters, digits, - and dots, at most 253";
            faults.add("policyName", format!("{policy_name:?} is not a name"), check::REFUSED, fix);
        }
        if let Some(ParamRef { which: ParamSelector::Name(name), .. }) = &param_ref
            && (name.is_empty() || !check::is_path_segment(name))
        {
            let fix = "write the name of an object, without / and %";
            faults.add("paramRef.name", format!("{name:?} is not a name"), check::REFUSED, fix);
        }
        if let Some(resources) = &match_resources {
            faults.check_resources("matchResources", resources, hook_type);
        }
        if hook_type == HookType::Validating && actions.names().next().is_none() {
            let why = "so a failed validation would have no effect";
            faults.add("validationActions", "is empty".to_owned(), why, "write [Deny], [Warn] or [Audit]");
        }
        if actions.deny && actions.warn {
            let why = "which would repeat the same text in the warning and in the rejection; no apiserver accepts it";
            faults.add("validationActions", "holds Deny and Warn".to_owned(), why, "keep one of the two");
        }
        let (name, policy_name) = (name.into(), policy_name.into());
        let (param_ref, match_resources) = (param_ref.map(Box::new), match_resources.map(Box::new));
        faults.end(Self { name, hook_type, policy_name, param_ref, match_resources, actions, enforcement: None })
    }
}
