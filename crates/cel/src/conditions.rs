//! Named conditions, and the decision that several of them make together. Source:
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions`.

use crate::{
    authorization::AccessCheck,
    check,
    compatibility::Change,
    environment::{Environment, Expected},
    evaluate,
    evaluator::Evaluator,
    input::Input,
    meter::{Allowance, Fault, MAX_CONDITIONS_COST, Memory, Meter, Stop},
    program::Program,
    value::Value,
};

/// A compiled condition.
#[derive(Debug)]
pub struct Condition {
    /// The name of the condition.
    pub name: Box<str>,
    /// The expression as it was written.
    pub expression: Box<str>,
    pub(super) program: Program,
}

impl Condition {
    /// Compiles a condition of a webhook.
    ///
    /// # Errors
    /// The message describes the fault of the expression.
    pub fn compile(name: &str, expression: &str) -> Result<Self, String> {
        Self::compile_in(name, expression, &Environment::default())
    }

    /// Compiles a condition that may use what the environment has.
    ///
    /// # Errors
    /// The message describes the fault of the expression.
    pub fn compile_in(name: &str, expression: &str, environment: &Environment) -> Result<Self, String> {
        let (program, _) = check::compile(expression, environment, Expected::Bool)?;
        Ok(Self { name: name.into(), expression: expression.into(), program })
    }

    /// Returns the parts of the expression that behave differently in other Kubernetes versions.
    pub fn changes(&self) -> &[&'static Change] {
        &self.program.changes
    }

    /// Returns true if the expression uses `object` or `oldObject`.
    pub fn reads_objects(&self) -> bool {
        self.program.uses.objects
    }

    /// Returns true if the expression uses `authorizer`.
    pub fn uses_authorizer(&self) -> bool {
        self.program.uses.authorizer
    }

    /// Returns true if the expression uses `params`.
    pub fn uses_params(&self) -> bool {
        self.program.uses.params
    }

    /// Evaluates the condition alone. Returns its value or the reason why it has none, and the cost.
    pub fn measure<'a>(&'a self, input: &'a Input<'a>, allowance: &Allowance<'_>) -> (Result<bool, String>, u64) {
        let (value, cost) = self.evaluate(input, allowance);
        let why = |fault| match fault {
            Fault::Error(why) => why.into_owned(),
            Fault::Stop(stop) => stop.text().to_owned(),
        };
        (value.map_err(why), cost)
    }

    /// Returns the value and the cost.
    pub(super) fn evaluate<'a>(
        &'a self,
        input: &'a Input<'a>,
        allowance: &Allowance<'_>,
    ) -> (Result<bool, Fault>, u64) {
        evaluated(&self.program, input, allowance)
    }
}

/// Returns the value and the cost of a program.
pub(super) fn evaluated<'a>(
    program: &'a Program,
    input: &'a Input<'a>,
    allowance: &Allowance<'_>,
) -> (Result<bool, Fault>, u64) {
    let memory = Memory::default();
    let meter = Meter::new(allowance, &memory, program.version);
    let decided = evaluate::value(program, input, None, &meter).and_then(boolean);
    (decided, meter.cost())
}

/// Returns the value as a bool.
pub(super) fn boolean(value: Value<'_>) -> Result<bool, Fault> {
    match value {
        Value::Bool(yes) => Ok(yes),
        _ => Err(Fault::no_such_overload()),
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.expression) == (&other.name, &other.expression)
    }
}

impl Eq for Condition {}

/// The decision of several conditions together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionsDecision<'c> {
    /// All conditions are true.
    Matches,
    /// This condition is false.
    Excluded(&'c str),
    /// No condition is false, and some have no value: the caller's failure policy decides. The message is in upstream's
    /// words.
    Failed(String),
    /// The evaluation takes more steps than allowed. Evaluate again with a larger allowance, on a thread that may
    /// block.
    TooLong,
    /// An access check has no decision yet. Evaluate again with one.
    Undecided(Box<AccessCheck>),
}

/// Upstream's message for expressions that together cost more than their limit.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Evaluates conditions in order. The first false condition decides, whatever errors came before it, and ends the
/// evaluation.
pub fn decide<'c>(
    conditions: &'c [Condition],
    input: &'c Input<'c>,
    allowance: &Allowance<'_>,
) -> ConditionsDecision<'c> {
    decide_with(conditions, |condition| condition.evaluate(input, allowance))
}

/// As [`decide`], with `evaluate` for the value and the cost of a condition.
pub(super) fn decide_with<'c>(
    conditions: &'c [Condition],
    mut evaluate: impl FnMut(&'c Condition) -> (Result<bool, Fault>, u64),
) -> ConditionsDecision<'c> {
    let mut left = MAX_CONDITIONS_COST;
    let evaluations = conditions.iter().map(|condition| {
        let (value, cost) = evaluate(condition);
        let value = match value {
            Err(Fault::Stop(Stop::TooLong)) => return Evaluated::TooLong,
            Err(Fault::Stop(Stop::Undecided(check))) => return Evaluated::Undecided(check),
            value => value,
        };
        match left.checked_sub(cost) {
            Some(rest) => left = rest,
            None => return Evaluated::OutOfBudget,
        }
        Evaluated::Value(
            &condition.name,
            value.map_err(|fault| {
                let why = match &fault {
                    Fault::Error(why) => why,
                    Fault::Stop(stop) => stop.text(),
                };
                format!("expression '{}' resulted in error: {why}", condition.expression)
            }),
        )
    });
    combined(evaluations)
}

impl<'a> Evaluator<'a> {
    /// Evaluates match conditions in order, as [`decide`](crate::decide) does.
    pub fn decide(&self, conditions: &'a [Condition], allowance: &Allowance<'_>) -> ConditionsDecision<'a> {
        decide_with(conditions, |condition| {
            let (value, cost) = self.run(&condition.program, allowance, |value, _| value.and_then(boolean));
            let is_final = !matches!(value, Err(Fault::Stop(Stop::TooLong | Stop::Undecided(_))));
            let variables_cost = if is_final { self.variables_cost.take() } else { 0 };
            (value, cost.saturating_add(variables_cost))
        })
    }
}

/// The result of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluated<'c> {
    /// The name of the condition with its value, or with the reason why it has none.
    Value(&'c str, Result<bool, String>),
    /// The conditions together cost more than the limit.
    OutOfBudget,
    /// The evaluation takes more steps than allowed.
    TooLong,
    /// An access check has no decision yet.
    Undecided(Box<AccessCheck>),
}

/// Combines results of conditions in order, and stops at the first that decides.
pub fn combined<'c>(evaluations: impl IntoIterator<Item = Evaluated<'c>>) -> ConditionsDecision<'c> {
    let mut errors: Vec<String> = Vec::new();
    for evaluated in evaluations {
        match evaluated {
            Evaluated::TooLong => return ConditionsDecision::TooLong,
            Evaluated::Undecided(check) => return ConditionsDecision::Undecided(check),
            Evaluated::OutOfBudget => return ConditionsDecision::Failed(OUT_OF_BUDGET.to_owned()),
            Evaluated::Value(_, Ok(true)) => {}
            Evaluated::Value(name, Ok(false)) => return ConditionsDecision::Excluded(name),
            Evaluated::Value(_, Err(error)) if errors.contains(&error) => {}
            Evaluated::Value(_, Err(error)) => errors.push(error),
        }
    }
    match errors.len() {
        0 => ConditionsDecision::Matches,
        1 => ConditionsDecision::Failed(errors.remove(0)),
        _ => ConditionsDecision::Failed(format!("[{}]", errors.join(", "))),
    }
}
