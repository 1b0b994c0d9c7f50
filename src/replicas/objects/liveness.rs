//! Liveness: which replicas say something new in the objects, and so live.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use crate::replicas::entry::{self, LIVE};

/// Age at which the entry of a dead replica is removed.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Times at which each replica was last seen to change its entry, by our own clock: others' may be wrong.
#[derive(Debug, Default)]
pub(super) struct Liveness(BTreeMap<String, (String, Instant)>);

impl Liveness {
    /// Sees what stands in the objects now.
    pub(super) fn hear(&mut self, objects: &[Value]) {
        let mut newest = BTreeMap::<String, String>::new();
        for entry in objects.iter().flat_map(|object| entry::entries(object).flatten()) {
            let renewed = newest.entry(entry.name).or_default();
            *renewed = entry.renewed.unwrap_or_default().max(std::mem::take(renewed));
        }
        self.0.retain(|name, _| newest.contains_key(name));
        for (name, renewed) in newest {
            let heard = self.0.entry(name).or_insert_with(|| (renewed.clone(), Instant::now()));
            if heard.0 != renewed {
                *heard = (renewed, Instant::now());
            }
        }
    }

    /// The names of those that live.
    pub(super) fn live(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, (_, at))| at.elapsed() <= LIVE).map(|(name, _)| &**name)
    }

    /// Has it been dead for so long that what it has said may go?
    pub(super) fn is_forgotten(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(_, at)| at.elapsed() > FORGOTTEN)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(entries: &[(&str, &str)]) -> Value {
        let entry = |(name, renewed): &(&str, &str)| {
            json!({
                "name": name, "instance": "1", "version": "0.1.0", "generation": 1, "renewed": renewed,
            })
        };
        json!({ "status": { "replicas": entries.iter().map(entry).collect::<Vec<_>>() } })
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_new_is_dead_after_a_while_whatever_its_clock_says() {
        let mut heard = Liveness::default();
        let live = |heard: &Liveness| heard.live().map(str::to_owned).collect::<Vec<_>>();
        heard.hear(&[object(&[("a", "2099-01-01T00:00:00Z"), ("b", "1999-01-01T00:00:00Z")])]);
        tokio::time::advance(LIVE).await;
        assert_eq!(live(&heard), ["a", "b"]);
        heard.hear(&[object(&[("a", "2099-01-01T00:00:00Z"), ("b", "1999-01-01T00:00:05Z")])]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(live(&heard), ["b"], "a has said nothing new");

        tokio::time::advance(FORGOTTEN - LIVE - Duration::from_secs(1)).await;
        assert!(!heard.is_forgotten("a"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(heard.is_forgotten("a") && !heard.is_forgotten("b") && !heard.is_forgotten("nobody"));
    }
}
