//! `quota.json`: quota that one write charges and gives back.

use gatepost_initializers::{Charge, QuotaPhase, QuotaStage, quota_phase};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    before: String,
    after: String,
    expect: Option<Expect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    count: String,
    rest: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let expect = match &case.expect {
        None => None,
        Some(Expect { count, rest }) => Some(QuotaPhase { count: charge(count)?, rest: charge(rest)? }),
    };
    equal("quota", quota_phase(stage(&case.before)?, stage(&case.after)?), expect)
}

fn stage(stage: &str) -> Result<QuotaStage, String> {
    Ok(match stage {
        "absent" => QuotaStage::Absent,
        "unfinished" => QuotaStage::Unfinished,
        "initialized" => QuotaStage::Initialized,
        other => return Err(format!("not understood: stage {other}")),
    })
}

fn charge(charge: &str) -> Result<Charge, String> {
    Ok(match charge {
        "nothing" => Charge::Nothing,
        "now" => Charge::Now,
        "at-completion" => Charge::AtCompletion,
        "difference" => Charge::Difference,
        "release" => Charge::Release,
        other => return Err(format!("not understood: charge {other}")),
    })
}
