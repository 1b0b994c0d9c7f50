//! Hook placement: which hooks of a new snapshot are asked at once, and which must first be seen to answer. Pure.

use std::collections::HashMap;

use crate::model::Endpoint;

/// State of a hook in the generation in force.
#[derive(Clone, Copy, Debug)]
pub struct HookInForce<'a> {
    /// Its id: names need not be unique.
    pub id: &'a str,
    /// The endpoint it is asked at, or would be.
    pub endpoint: &'a Endpoint,
    /// Is it asked, and has that endpoint answered, or was named by the first configuration?
    pub proven: bool,
}

/// Placement of a hook of the new snapshot. Numbers are places among the hooks of the generation in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Asked, over a new connection: the process has just started, and a restart must never enforce less.
    Bootstrap,
    /// Asked, over the connection of that hook, which has the same endpoint and is asked already.
    Reuse(usize),
    /// Asked, over what is left of the connection of a hook that left that endpoint a moment ago, proven; the number is
    /// its place among those.
    Rejoin(usize),
    /// Not asked before a probe of its endpoint has passed.
    ProbeFirst,
    /// Asked at its old place, over the connection of that hook (the same one under its former endpoint), until a
    /// probe of the new endpoint has passed.
    Migrate(usize),
}

impl Placement {
    /// The placement it has while the process is starting: the file that was read first may have been half written, and
    /// what the rest of it says is as much what a restart must enforce.
    pub fn begin(&mut self) {
        if let Self::ProbeFirst | Self::Migrate(_) = self {
            *self = Self::Bootstrap;
        }
    }
}

/// Seats each hook (id and endpoint) of a new snapshot; `None` in force means that there was no snapshot before.
/// `left`: the endpoints that proven hooks have left lately.
pub fn place_hooks<'a>(
    in_force: Option<&[HookInForce<'_>]>,
    left: &[&Endpoint],
    new: impl Iterator<Item = (&'a str, &'a Endpoint)>,
) -> Vec<Placement> {
    let Some(in_force) = in_force else { return new.map(|_| Placement::Bootstrap).collect() };
    let (mut by_id, mut by_endpoint) = (HashMap::new(), HashMap::new());
    for (place, old) in in_force.iter().enumerate().filter(|(_, old)| old.proven) {
        by_id.entry(old.id).or_insert(place);
        by_endpoint.entry(old.endpoint).or_insert(place);
    }
    let left: HashMap<&Endpoint, usize> = left.iter().copied().zip(0..).collect();
    new.map(|(id, endpoint)| {
        // Its own former place is looked at first, so that a hook does not change connections without need.
        let same_hook = by_id.get(id).copied();
        if let Some(place) = same_hook
            && in_force[place].endpoint == endpoint
        {
            return Placement::Reuse(place);
        }
        if let Some(place) = by_endpoint.get(endpoint) {
            return Placement::Reuse(*place);
        }
        if let Some(place) = left.get(endpoint) {
            return Placement::Rejoin(*place);
        }
        same_hook.map_or(Placement::ProbeFirst, Placement::Migrate)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Transport, hook::Address};

    fn at(port: u16) -> Endpoint {
        Endpoint { address: Address::Tcp { host: "::1".into(), port }, tls: None, transport: Transport::Grpc }
    }

    fn placements(in_force: Option<&[(&str, u16, bool)]>, new: &[(&str, u16)]) -> Vec<Placement> {
        seats_after(in_force, &[], new)
    }

    fn seats_after(in_force: Option<&[(&str, u16, bool)]>, left: &[u16], new: &[(&str, u16)]) -> Vec<Placement> {
        let endpoints: Vec<_> = in_force.unwrap_or_default().iter().map(|(_, port, _)| at(*port)).collect();
        let former: Vec<_> = in_force
            .unwrap_or_default()
            .iter()
            .zip(&endpoints)
            .map(|((id, _, proven), endpoint)| HookInForce { id, endpoint, proven: *proven })
            .collect();
        let new: Vec<_> = new.iter().map(|(id, port)| (*id, at(*port))).collect();
        let left: Vec<_> = left.iter().map(|port| at(*port)).collect();
        place_hooks(
            in_force.map(|_| &*former),
            &left.iter().collect::<Vec<_>>(),
            new.iter().map(|(id, endpoint)| (*id, endpoint)),
        )
    }

    #[test]
    fn the_first_snapshot_is_asked_at_once_a_later_addition_is_not() {
        assert_eq!(placements(None, &[("a", 1), ("b", 2)]), [Placement::Bootstrap, Placement::Bootstrap]);
        assert_eq!(placements(Some(&[]), &[("a", 1)]), [Placement::ProbeFirst]);
        assert_eq!(
            placements(Some(&[("a", 1, true)]), &[("b", 2), ("a", 1)]),
            [Placement::ProbeFirst, Placement::Reuse(0)]
        );
    }

    #[test]
    fn while_the_process_is_starting_nothing_waits_for_a_probe() {
        let all = [
            Placement::Bootstrap,
            Placement::Reuse(1),
            Placement::Rejoin(2),
            Placement::ProbeFirst,
            Placement::Migrate(3),
        ];
        let began = all.map(|mut placement| {
            placement.begin();
            placement
        });
        assert_eq!(
            began,
            [
                Placement::Bootstrap,
                Placement::Reuse(1),
                Placement::Rejoin(2),
                Placement::Bootstrap,
                Placement::Bootstrap
            ]
        );
    }

    #[test]
    fn a_proven_endpoint_serves_any_hook() {
        assert_eq!(placements(Some(&[("a", 1, true)]), &[("renamed", 1)]), [Placement::Reuse(0)]);
        let twins = [("a", 1, true), ("b", 1, true)];
        assert_eq!(placements(Some(&twins), &[("b", 1), ("c", 1)]), [Placement::Reuse(1), Placement::Reuse(0)]);
    }

    #[test]
    fn a_hook_that_moves_is_asked_at_its_old_place_until_the_new_one_is_proven() {
        assert_eq!(placements(Some(&[("a", 1, true)]), &[("a", 2)]), [Placement::Migrate(0)]);
        let both = [("a", 1, true), ("b", 2, true)];
        assert_eq!(placements(Some(&both), &[("a", 2)]), [Placement::Reuse(1)], "the new place is proven already");
    }

    #[test]
    fn an_endpoint_that_was_left_a_moment_ago_is_proven_still() {
        assert_eq!(
            seats_after(Some(&[]), &[7, 1], &[("a", 1), ("b", 2)]),
            [Placement::Rejoin(1), Placement::ProbeFirst]
        );
        let moving_back = seats_after(Some(&[("a", 2, true)]), &[1], &[("a", 1)]);
        assert_eq!(moving_back, [Placement::Rejoin(0)]);
        assert_eq!(seats_after(Some(&[("a", 1, true)]), &[1], &[("b", 1)]), [Placement::Reuse(0)]);
        assert_eq!(seats_after(None, &[1], &[("a", 1)]), [Placement::Bootstrap]);
    }

    #[test]
    fn what_never_answered_proves_nothing() {
        assert_eq!(placements(Some(&[("a", 1, false)]), &[("a", 1)]), [Placement::ProbeFirst]);
        assert_eq!(placements(Some(&[("a", 1, false)]), &[("a", 2)]), [Placement::ProbeFirst]);
        assert_eq!(placements(Some(&[("a", 1, false)]), &[("b", 1)]), [Placement::ProbeFirst]);
    }
}
