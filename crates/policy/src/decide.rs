//! Decides a validating policy for one request. Source:
//! `k8s.io/apiserver/pkg/admission/plugin/policy/validating/{dispatcher,validator}.go`.

use gatepost_cel::{
    Allowance, ConditionsDecision, Evaluation, Evaluator, Expression, Failure, Input, JsonDocument, OUT_OF_BUDGET,
    Output,
};
use smallvec::SmallVec;

use crate::{
    binding::Binding,
    definition::{Definition, Policy, Reason, Validation},
    outcome::{AnnotationCollector, Error, Outcome},
    suspended::Suspended,
};

/// Maximum cost of the validations of a policy with their messages, of its audit annotations, and of a mutation, as
/// upstream.
pub(super) const MAX_COST: u64 = 10_000_000;

/// Maximum length in bytes of a message from an expression, as upstream.
const MAX_MESSAGE_BYTES: usize = 5 << 10;

/// A binding that matches the request.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// Params, for each of which the policy is evaluated: `[None]` if the policy or the binding has none. The error
    /// says why they cannot be read.
    pub params: Result<&'a [Option<JsonDocument<'a>>], &'a str>,
}

/// Decides a validating policy for one request. `bound` are the bindings that match, in the order of the policy.
///
/// # Errors
/// The policy is undecided.
pub fn decide<'a>(
    policy: &'a Policy,
    bound: impl IntoIterator<Item = Bound<'a>>,
    input: &'a Input<'a>,
    allowance: &Allowance<'_>,
) -> Result<Outcome, Suspended> {
    let mut outcome = Outcome::default();
    decide_into(&mut outcome, policy, bound, input, allowance)?;
    Ok(outcome)
}

/// Decides like [`decide`], and leaves what was decided before an error in `outcome`: a denial among it counts, whatever
/// becomes of the rest.
///
/// # Errors
/// The policy is undecided.
pub fn decide_into<'a>(
    outcome: &mut Outcome,
    policy: &'a Policy,
    bound: impl IntoIterator<Item = Bound<'a>>,
    input: &'a Input<'a>,
    allowance: &Allowance<'_>,
) -> Result<(), Suspended> {
    let mut annotations = AnnotationCollector::default();
    let (mut evaluations, mut excluded) = (0, 0);
    // Conditions without params are decided once.
    let uses_params = policy.definition.conditions.iter().any(gatepost_cel::Condition::uses_params);
    let mut decided = None;
    for Bound { binding, params } in bound {
        let params = match params {
            Ok(params) => params,
            Err(why) => {
                outcome.fail_configuration(policy, Some(binding), why);
                continue;
            }
        };
        for param in params {
            let evaluation =
                PolicyEvaluation { definition: &policy.definition, input, param: param.as_ref(), allowance };
            if decided.is_none() || uses_params {
                decided = Some(evaluation.applies()?);
            }
            evaluations += 1;
            let result = match &decided {
                None | Some(Applicability::Applies) => evaluation.validate(&mut outcome.cost)?,
                Some(Applicability::Excluded) => {
                    excluded += 1;
                    continue;
                }
                Some(Applicability::Failed(_)) if policy.ignores_errors() => {
                    outcome.failed_open += 1;
                    continue;
                }
                Some(Applicability::Failed(why)) => Validated::error(why.clone()),
            };
            outcome.add(policy, binding, result, &mut annotations);
        }
    }
    outcome.audit_annotations = annotations.finish();
    outcome.is_excluded = evaluations > 0 && excluded == evaluations;
    Ok(())
}

/// Whether the match conditions of a policy hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Applicability {
    /// They do.
    Applies,
    /// One is false: the policy has nothing to say about the request.
    Excluded,
    /// They cannot be evaluated, for this reason in upstream's words. The failure policy decides.
    Failed(String),
}

/// Decision of one validation that is not true.
enum Decision {
    Deny(String, Reason),
    Error(String),
}

/// Results for one param of a binding.
struct Validated<'a> {
    /// With the index of each validation.
    decisions: Vec<(usize, Decision)>,
    annotations: Annotations<'a>,
}

/// Keys of audit annotations with values, or the messages why there are none. Null and blank values are left out.
type Annotations<'a> = Vec<(&'a str, Result<String, String>)>;

impl Validated<'_> {
    /// Returns the result of an evaluation that failed as a whole.
    fn error(why: String) -> Self {
        Self { decisions: vec![(0, Decision::Error(why))], annotations: Vec::new() }
    }
}

impl Outcome {
    /// Adds the results for one param of a binding.
    fn add<'a>(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        validated: Validated<'a>,
        annotations: &mut AnnotationCollector<'a>,
    ) {
        for (index, decision) in validated.decisions {
            let (why, reason, error) = match decision {
                Decision::Error(_) if policy.ignores_errors() => {
                    self.failed_open += 1;
                    continue;
                }
                Decision::Error(why) => (why, Reason::Invalid, Error::Yes),
                Decision::Deny(why, reason) => (why, reason, Error::No),
            };
            if binding.actions.deny {
                self.deny(policy, Some(binding), reason, error, &why);
            }
            if binding.actions.audit {
                self.audit(policy, binding, index, &why);
            }
            if binding.actions.warn {
                self.warn(&policy.definition.name, &binding.name, &why);
            }
        }
        for (key, value) in validated.annotations {
            match value {
                Ok(value) => annotations.add(key, value),
                Err(_) if policy.ignores_errors() => self.failed_open += 1,
                // As upstream, whatever the actions of the binding are.
                Err(why) => self.deny(policy, Some(binding), Reason::Invalid, Error::Yes, &why),
            }
        }
    }
}

/// Evaluation of a policy for one request and one param.
pub(super) struct PolicyEvaluation<'a, 'b> {
    pub(super) definition: &'a Definition,
    pub(super) input: &'a Input<'a>,
    pub(super) param: Option<&'a JsonDocument<'a>>,
    pub(super) allowance: &'b Allowance<'b>,
}

/// Value of an expression; the error is upstream's message.
pub(super) type Value = Result<Output, String>;

/// Cost that expressions may still have together.
pub(super) struct Budget<'b> {
    left: u64,
    /// Cost of all expressions so far.
    spent: &'b mut u64,
}

impl<'b> Budget<'b> {
    pub(super) fn new(spent: &'b mut u64) -> Self {
        Self { left: MAX_COST, spent }
    }

    /// Subtracts a cost. Returns false if less is left.
    fn pay(&mut self, cost: u64) -> bool {
        *self.spent = self.spent.saturating_add(cost);
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

impl<'a> PolicyEvaluation<'a, '_> {
    /// Returns an evaluator. Variables are evaluated once by each.
    pub(super) fn evaluator(&self) -> Evaluator<'a> {
        Evaluator::new(self.input, self.param, &self.definition.variables)
    }

    /// Decides the match conditions.
    pub(super) fn applies(&self) -> Result<Applicability, Suspended> {
        if self.definition.conditions.is_empty() {
            return Ok(Applicability::Applies);
        }
        let evaluator = self.evaluator().without_namespace();
        match evaluator.decide(&self.definition.conditions, self.allowance) {
            ConditionsDecision::Matches => Ok(Applicability::Applies),
            ConditionsDecision::Excluded(_) => Ok(Applicability::Excluded),
            ConditionsDecision::TooLong => Err(Suspended::TooLong),
            ConditionsDecision::Undecided(check) => Err(Suspended::Undecided(check)),
            ConditionsDecision::Failed(_) if (self.allowance.over)() => Err(Suspended::Deadline),
            ConditionsDecision::Failed(why) => Ok(Applicability::Failed(why)),
        }
    }

    /// Evaluates one expression; `None` if it costs more than is left.
    pub(super) fn value(
        &self,
        evaluator: &Evaluator<'a>,
        expression: &'a Expression,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Value>, Suspended> {
        let Evaluation { result, cost, variables_cost } = evaluator.evaluate(expression, self.allowance);
        let value = match result {
            Ok(output) => Ok(output),
            Err(Failure::TooLong) => return Err(Suspended::TooLong),
            Err(Failure::Undecided(check)) => return Err(Suspended::Undecided(check)),
            Err(Failure::Deadline) => return Err(Suspended::Deadline),
            Err(Failure::Error(why)) => Err(format!("expression '{}' resulted in error: {why}", expression.text())),
            Err(Failure::Conversion(why)) => Err(why),
        };
        Ok((budget.pay(variables_cost) && budget.pay(cost)).then_some(value))
    }

    /// Evaluates validations, messages and audit annotations.
    fn validate(&self, cost: &mut u64) -> Result<Validated<'a>, Suspended> {
        let mut budget = Budget::new(cost);
        let Some(values) = self.validations(&mut budget)? else {
            return Ok(Validated::error(OUT_OF_BUDGET.to_owned()));
        };
        let messages = self.messages(&mut budget)?;
        // As upstream, audit annotations that cost too much also replace the decisions.
        let Some(annotations) = self.audit_annotations(&mut Budget::new(budget.spent))? else {
            return Ok(Validated::error(OUT_OF_BUDGET.to_owned()));
        };
        let decision = |(index, value): (usize, Value)| {
            let decided = match (value, &messages) {
                (Err(why), _) => Decision::Error(why),
                // As upstream, of a validation that is true, too.
                (Ok(_), None) => Decision::Error(format!("failed messageExpression: {OUT_OF_BUDGET}")),
                (Ok(Output::Bool(true)), Some(_)) => return None,
                (Ok(_), Some(messages)) => {
                    let validation = &self.definition.validations[index];
                    let text = messages.get(index).and_then(Option::as_deref);
                    Decision::Deny(message(validation, text), validation.reason)
                }
            };
            Some((index, decided))
        };
        Ok(Validated { decisions: values.into_iter().enumerate().filter_map(decision).collect(), annotations })
    }

    /// Evaluates every validation; `None` if they cost too much.
    fn validations(&self, budget: &mut Budget<'_>) -> Result<Option<SmallVec<[Value; 4]>>, Suspended> {
        let evaluator = self.evaluator();
        let mut values = SmallVec::new();
        for validation in &self.definition.validations {
            let Some(value) = self.value(&evaluator, &validation.expression, budget)? else { return Ok(None) };
            values.push(value);
        }
        Ok(Some(values))
    }

    /// Evaluates every message expression, also of validations that are true, because of their cost; `None` if they
    /// cost too much. A message is `None` if there is no expression, or no text; there are none at all if no validation
    /// has an expression.
    fn messages(&self, budget: &mut Budget<'_>) -> Result<Option<Vec<Option<String>>>, Suspended> {
        if self.definition.validations.iter().all(|validation| validation.message_expression.is_none()) {
            return Ok(Some(Vec::new()));
        }
        let evaluator = self.evaluator().without_authorizer();
        let message = |validation: &'a Validation| match &validation.message_expression {
            None => Ok(Some(None)),
            Some(expression) => Ok(self.value(&evaluator, expression, budget)?.map(|value| match value {
                Ok(Output::String(text)) => Some(text),
                _ => None,
            })),
        };
        self.definition.validations.iter().map(message).collect()
    }

    /// Evaluates every audit annotation; `None` if they cost too much.
    fn audit_annotations(&self, budget: &mut Budget<'_>) -> Result<Option<Annotations<'a>>, Suspended> {
        let evaluator = self.evaluator().without_authorizer();
        let mut annotations = Vec::new();
        for annotation in &self.definition.audit_annotations {
            let Some(value) = self.value(&evaluator, &annotation.value, budget)? else { return Ok(None) };
            let value = match value {
                Ok(Output::String(text)) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
                Ok(_) => continue,
                Err(why) => Err(why),
            };
            annotations.push((&*annotation.key, value));
        }
        Ok(Some(annotations))
    }
}

/// Returns the message of a validation that is false: the text of its expression if that is usable, else the written
/// message, else one with the expression.
fn message(validation: &Validation, text: Option<&str>) -> String {
    let is_usable = |text: &&str| !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
    match (text.map(str::trim).filter(is_usable), &*validation.message) {
        (Some(text), _) => text.to_owned(),
        (None, "") => format!("failed expression: {}", validation.expression.text().trim()),
        (None, written) => written.to_owned(),
    }
}
