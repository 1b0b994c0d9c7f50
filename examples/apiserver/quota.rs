//! Quota: what the objects of each namespace use, and what its ResourceQuotas allow.
//!
//! It is counted from the storage when the process begins, so a crash leaves nothing charged. One process alone serves
//! a storage with quota; a real apiserver keeps what is used in the ResourceQuota.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use gatepost_wire::pb::gatepost::v1::Charge;
use serde_json::Value;

use crate::{object::Object, refusal::Refusal};

/// Number of objects of each resource, and thousandths of CPUs that their Pods request.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    used: Mutex<HashMap<(String, String), i64>>,
}

/// Charges of one write, given back where it fails.
#[derive(Debug, Default)]
pub(crate) struct Charged(Vec<((String, String), i64)>);

impl Quota {
    /// Charges, or gives back, one part of quota. `limits` are the ResourceQuotas of the namespace.
    pub(crate) fn charge(
        &self,
        charge: Charge,
        what: &str,
        (before, after): (Option<&Object>, Option<&Object>),
        limits: &[Object],
        charged: &mut Charged,
    ) -> Result<(), Refusal> {
        let Some(object) = after.or(before) else { return Ok(()) };
        let amount = |object: Option<&Object>| object.map_or(0, |object| amount(what, object));
        let more = match charge {
            Charge::Now => amount(after),
            Charge::Difference => amount(after) - amount(before),
            Charge::Release => -amount(before),
            Charge::Nothing | Charge::AtCompletion => 0,
        };
        let name = if what == COUNT { format!("count/{}", object.place.kind.resource) } else { what.to_owned() };
        let hard = limits.iter().filter_map(|quota| milli(&quota.json["spec"]["hard"][&name])).min();
        let key = (object.place.namespace.clone(), name);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = used.entry(key.clone()).or_default();
        if let Some(hard) = hard.filter(|hard| more > 0 && *now + more > *hard) {
            let why = format!("exceeded quota: {}, requested {more}m, used {now}m, limited {hard}m", key.1);
            return Err(Refusal::new(403, "Forbidden", why));
        }
        *now += more;
        charged.0.push((key, more));
        Ok(())
    }

    /// Gives back what was charged.
    pub(crate) fn undo(&self, charged: Charged) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, more) in charged.0 {
            *used.entry(key).or_default() -= more;
        }
    }
}

/// The number of objects.
pub(crate) const COUNT: &str = "count";
/// All else: of Pods, and only CPU.
pub(crate) const REST: &str = "requests.cpu";

fn amount(what: &str, object: &Object) -> i64 {
    if what == COUNT {
        return 1000;
    }
    let containers = object.json["spec"]["containers"].as_array().into_iter().flatten();
    containers.filter_map(|container| milli(&container["resources"]["requests"]["cpu"])).sum()
}

/// `2`, `"2"` or `"500m"` in thousandths.
fn milli(quantity: &Value) -> Option<i64> {
    match quantity {
        Value::Number(number) => number.as_i64().map(|whole| 1000 * whole),
        Value::String(text) => match text.strip_suffix('m') {
            Some(milli) => milli.parse().ok(),
            None => text.parse::<i64>().ok().map(|whole| 1000 * whole),
        },
        _ => None,
    }
}
