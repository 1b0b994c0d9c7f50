//! Conditions: decision on whether a hook is asked about a request, by its `matchConditions`.

use smallvec::SmallVec;

use crate::{
    authorization::AccessCheck,
    check,
    evaluate::Evaluation,
    input::Input,
    meter::{Allowance, Fault, MOST_OF_ALL, Meter, Stop},
    program::Program,
    value::Value,
};

/// One condition, ready to be evaluated.
#[derive(Debug)]
pub struct Condition {
    /// Name in messages.
    pub name: Box<str>,
    /// As it was written.
    pub expression: Box<str>,
    program: Program,
}

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    /// The text says what is wrong with the expression.
    pub fn compile(name: &str, expression: &str) -> Result<Self, String> {
        Ok(Self { name: name.into(), expression: expression.into(), program: check::compile(expression)? })
    }

    /// Does it look at the object, or the old one?
    pub fn reads_objects(&self) -> bool {
        self.program.reads_objects
    }

    /// Does it ask what a user may do?
    pub fn asks_authorizer(&self) -> bool {
        self.program.asks_authorizer
    }

    /// Its value, or why it has none, and what that cost: for those who compare it with another's.
    pub fn measure<'a>(&'a self, input: &'a Input<'a>, allowance: &Allowance<'_>) -> (Result<bool, String>, u64) {
        let (value, cost) = self.evaluate(input, allowance);
        let why = |fault| match fault {
            Fault::Error(why) => why.into_owned(),
            Fault::Stop(stop) => stop.text().to_owned(),
        };
        (value.map_err(why), cost)
    }

    /// Its value, and what that cost.
    pub(super) fn evaluate<'a>(
        &'a self,
        input: &'a Input<'a>,
        allowance: &Allowance<'_>,
    ) -> (Result<bool, Fault>, u64) {
        evaluated(&self.program, input, allowance)
    }
}

/// A program's value, and what it cost.
pub(super) fn evaluated<'a>(
    program: &'a Program,
    input: &'a Input<'a>,
    allowance: &Allowance<'_>,
) -> (Result<bool, Fault>, u64) {
    let meter = Meter::new(allowance);
    let mut slots = SmallVec::new();
    slots.resize(program.slots, Value::Null);
    let value = Evaluation { input, meter: &meter, slots }.value(&program.root);
    let decided = value.and_then(|value| match value {
        Value::Bool(yes) => Ok(yes),
        _ => Err(Fault::no_such_overload()),
    });
    (decided, meter.cost())
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.expression) == (&other.name, &other.expression)
    }
}

impl Eq for Condition {}

/// Result of the conditions of one hook. Source: `docs/reference/webhook-semantics.md` §7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionsDecision<'c> {
    /// The hook is asked.
    Matches,
    /// The hook is not asked, because of this condition.
    Excluded(&'c str),
    /// None is false, and some have no value: the failure policy decides. As upstream words it.
    Failed(String),
    /// It takes longer than was allowed, and is to be begun anew elsewhere.
    TooLong,
    /// It is to be begun anew with a decision on this access check.
    Undecided(Box<AccessCheck>),
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Evaluates conditions in order. The first that is false excludes the hook, whatever errors came before it; what comes
/// behind it is not evaluated.
pub fn decide<'c>(
    conditions: &'c [Condition],
    input: &'c Input<'c>,
    allowance: &Allowance<'_>,
) -> ConditionsDecision<'c> {
    let mut left = MOST_OF_ALL;
    let evaluations = conditions.iter().map(|condition| {
        let (value, cost) = condition.evaluate(input, allowance);
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

/// Result of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluated<'c> {
    /// Value under its name, or the reason why it has none.
    Value(&'c str, Result<bool, String>),
    /// All together cost more than they may.
    OutOfBudget,
    /// It takes longer than was allowed.
    TooLong,
    /// It makes an access check that has no decision yet.
    Undecided(Box<AccessCheck>),
}

/// Result of conditions taken one after the other until it is known.
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
