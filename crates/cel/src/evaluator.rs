//! Evaluates the expressions of a policy, which share variables. Source:
//! `k8s.io/apiserver/pkg/admission/plugin/cel/{activation,composition}.go`.

use std::cell::{Cell, RefCell};

use crate::{
    environment::Expected,
    evaluate::{self, PolicyScope},
    expression::{Evaluation, Expression, Failure, Output},
    input::{Input, JsonDocument},
    meter::{Allowance, Fault, Memory, Meter, Stop},
    mutation,
    program::Program,
    value::Value,
};

/// Evaluates expressions of one policy for one request and one object of parameters. A variable is evaluated on its
/// first use, and once.
///
/// Upstream evaluates variables anew for each kind of expression of a policy (match conditions, validations, message
/// expressions, audit annotations, each mutation), and so counts their costs anew. Use one evaluator for each.
#[derive(Debug)]
pub struct Evaluator<'a> {
    input: &'a Input<'a>,
    params: Option<&'a JsonDocument<'a>>,
    variables: &'a [(Box<str>, Expression)],
    has_authorizer: bool,
    has_namespace: bool,
    /// Values of the variables that were used, or their errors.
    values: RefCell<Vec<Option<Result<Value<'a>, Fault>>>>,
    /// Memory of the variables, and of the expression that is evaluated.
    memory: Memory,
    /// Bytes of text that the values of variables hold.
    kept: Cell<usize>,
    /// Cost of variables that no result reports yet.
    pub(super) variables_cost: Cell<u64>,
}

impl<'a> Evaluator<'a> {
    /// Creates an evaluator. The variables are those of the environment in which the expressions were compiled, in the
    /// order of their declarations.
    pub fn new(
        input: &'a Input<'a>,
        params: Option<&'a JsonDocument<'a>>,
        variables: &'a [(Box<str>, Expression)],
    ) -> Self {
        Self {
            input,
            params,
            variables,
            has_authorizer: true,
            has_namespace: true,
            values: RefCell::default(),
            memory: Memory::default(),
            kept: Cell::new(0),
            variables_cost: Cell::new(0),
        }
    }

    /// Makes each use of `authorizer` an error, as in message expressions and audit annotations.
    pub fn without_authorizer(self) -> Self {
        Self { has_authorizer: false, ..self }
    }

    /// Makes `namespaceObject` null, as in match conditions.
    pub fn without_namespace(self) -> Self {
        Self { has_namespace: false, ..self }
    }

    /// Evaluates an expression.
    ///
    /// After [`Failure::TooLong`] and [`Failure::Undecided`], it may be evaluated again. The next result then reports
    /// the cost of the variables that have their values.
    pub fn evaluate(&self, expression: &'a Expression, allowance: &Allowance<'_>) -> Evaluation {
        let (result, cost) = self.run(&expression.program, allowance, |value, meter| {
            let value = value?;
            Ok(match (expression.expected, value) {
                (Expected::ObjectPatch, value) => Output::Json(mutation::object(&value, self.input, meter)?),
                (Expected::JsonPatch, value) => Output::Json(mutation::json_patch(&value, self.input, meter)?),
                (_, Value::Bool(yes)) => Output::Bool(yes),
                (_, Value::Null) => Output::Null,
                (_, Value::String(text)) => {
                    meter.make(text.as_str().len())?;
                    Output::String(text.as_str().to_owned())
                }
                (Expected::Any, value) => Output::Json(mutation::value(&value, self.input, meter)?),
                _ => return Err(Fault::no_such_overload().into()),
            })
        });
        let is_final = !matches!(result, Err(Failure::TooLong | Failure::Undecided(_)));
        let variables_cost = if is_final { self.variables_cost.take() } else { 0 };
        Evaluation { result, cost, variables_cost }
    }

    /// Returns an evaluator of the same input whose variables have no values yet.
    pub(super) fn fresh(&self) -> Evaluator<'_> {
        let Self { has_authorizer, has_namespace, .. } = *self;
        Evaluator { has_authorizer, has_namespace, ..Evaluator::new(self.input, self.params, self.variables) }
    }

    /// Evaluates an expression, and calls `finish` with its value.
    pub(super) fn observe<T>(
        &self,
        expression: &'a Expression,
        allowance: &Allowance<'_>,
        finish: impl FnOnce(Result<Value<'a>, Fault>, &Meter<'_>) -> T,
    ) -> T {
        self.run(&expression.program, allowance, finish).0
    }

    /// Runs a program, and calls `finish` with its value. Returns the cost, too.
    pub(super) fn run<T>(
        &self,
        program: &'a Program,
        allowance: &Allowance<'_>,
        finish: impl FnOnce(Result<Value<'a>, Fault>, &Meter<'_>) -> T,
    ) -> (T, u64) {
        let meter = Meter::new(allowance, &self.memory, program.version);
        let value = evaluate::value(program, self.input, Some(self), &meter);
        let cost = meter.cost();
        let finished = finish(value, &meter);
        self.memory.set_made(self.kept.get());
        (finished, cost)
    }
}

impl<'a> PolicyScope<'a> for Evaluator<'a> {
    fn variable(&self, index: usize, outer: &Meter<'_>) -> Result<Value<'a>, Fault> {
        if let Some(Some(known)) = self.values.borrow().get(index) {
            return known.clone();
        }
        let Some((name, expression)) = self.variables.get(index) else {
            return Err(Fault::error("the evaluator has not got all variables"));
        };
        let (made, kept) = (self.memory.made(), self.kept.get());
        let meter = Meter::new(outer.allowance, &self.memory, expression.program.version);
        let value = evaluate::value(&expression.program, self.input, Some(self), &meter);
        let failed = |why: &str| Fault::error(format!("composited variable {name:?} fails to evaluate: {why}"));
        let value = match value {
            Ok(value) => Ok(value),
            Err(Fault::Error(why)) => Err(failed(&why)),
            Err(Fault::Stop(stop @ Stop::Cost)) => Err(failed(stop.text())),
            // Another evaluation may find the value.
            Err(suspended @ Fault::Stop(_)) => return Err(suspended),
        };
        self.kept.set(kept.saturating_add(self.memory.made().saturating_sub(made)));
        self.variables_cost.set(self.variables_cost.get().saturating_add(meter.cost()));
        let mut values = self.values.borrow_mut();
        if values.len() < self.variables.len() {
            values.resize(self.variables.len(), None);
        }
        values[index] = Some(value.clone());
        value
    }

    fn params(&self) -> Option<&'a JsonDocument<'a>> {
        self.params
    }

    fn has_authorizer(&self) -> bool {
        self.has_authorizer
    }

    fn has_namespace(&self) -> bool {
        self.has_namespace
    }
}
