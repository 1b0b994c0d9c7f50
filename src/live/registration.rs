//! Registration: comparison of the registration with the apiserver with the hooks and initializers in force.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// Age above which a comparison says nothing any more.
const TOO_OLD_AFTER: Duration = Duration::from_secs(5 * 60);

/// The last comparison, and the failure to make another.
#[derive(Clone, Debug)]
pub struct RegistrationState {
    /// Name of the registration.
    pub name: Arc<str>,
    /// A line for each hook, and each resource with initializers, of which something is not sent, and its time; `None`
    /// before the first comparison.
    pub compared: Option<(Arc<BTreeSet<String>>, Instant)>,
    /// Reason why the registration cannot be read at present.
    pub failure: Option<String>,
}

impl RegistrationState {
    /// Lines of the last comparison; `None` where there was none lately.
    pub fn uncovered(&self, now: Instant) -> Option<&BTreeSet<String>> {
        let (lines, at) = self.compared.as_ref()?;
        (now.saturating_duration_since(*at) < TOO_OLD_AFTER).then_some(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_of_long_ago_is_not_known() {
        let now = Instant::now();
        let mut state = RegistrationState { name: "r".into(), compared: None, failure: None };
        assert_eq!(state.uncovered(now), None);
        let lines = BTreeSet::from(["a".to_owned()]);
        state.compared = Some((Arc::new(lines.clone()), now));
        assert_eq!(state.uncovered(now), Some(&lines));
        assert_eq!(state.uncovered(now + TOO_OLD_AFTER), None);
    }
}
