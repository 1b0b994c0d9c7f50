//! Validation: rules in CEL, for what a shape cannot say.

use serde_json::{Value, json};

/// `x-kubernetes-validations`: each rule and what a cluster answers where it does not hold.
pub(super) fn rules(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect()
}

/// A time that humans write, as CEL's `duration` reads it.
macro_rules! duration {
    ($time:literal) => {
        concat!(
            "duration(",
            $time,
            ".replace(' ', '').replace('nanos', 'ns').replace('nsec', 'ns').replace('usec', 'us').replace('millis', 'ms')\
             .replace('msec', 'ms').replace('seconds', 's').replace('second', 's').replace('secs', 's').replace('sec', 's')\
             .replace('minutes', 'm').replace('minute', 'm').replace('mins', 'm').replace('min', 'm')\
             .replace('hours', 'h').replace('hour', 'h').replace('hrs', 'h').replace('hr', 'h'))"
        )
    };
}
pub(super) use duration;
