//! Levels: the label with a namespace's runlevel, and the order in which objects depend on others to start.

use gatepost_api::Labels;

/// Label with the runlevel of a namespace, a number.
pub const LABEL: &str = "gatepost.dev/runlevel";

/// Runlevel of hooks that depend on no other hook.
pub const HOOKS: u32 = 2;

/// Namespaces of the control plane: runlevel 0.
pub const SYSTEM: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Returns the level in the label, if it is a number.
pub(super) fn stated(labels: Option<&Labels>) -> Option<u32> {
    labels?.get(LABEL)?.parse().ok()
}

/// Returns the levels from `0` to this one, as values of the label.
pub(super) fn levels_up_to(level: u32) -> Vec<String> {
    /// Maximum level of the result: a label may have any number.
    const MAX_LEVEL: u32 = 99;
    (0..=level.min(MAX_LEVEL)).map(|level| level.to_string()).collect()
}

/// Returns the strongly connected components, by Tarjan's algorithm. `edges[n]` are the nodes that n needs. A component
/// comes after every component that it needs; its nodes ascend.
pub(super) fn groups(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        order: vec![None; edges.len()],
        low: vec![0; edges.len()],
        is_open: vec![false; edges.len()],
        ..Search::default()
    };
    for node in 0..edges.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.groups
}

#[derive(Default)]
struct Search<'a> {
    edges: &'a [Vec<usize>],
    /// Order in which each node was first visited.
    order: Vec<Option<usize>>,
    /// Earliest node that each node reaches.
    low: Vec<usize>,
    seen: usize,
    /// Nodes whose group is not complete.
    open: Vec<usize>,
    is_open: Vec<bool>,
    groups: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Visits a node and all that it reaches, without recursion: a configuration decides the depth.
    fn visit(&mut self, root: usize) {
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((node, next)) = path.last_mut() {
            let (node, edges) = (*node, self.edges);
            if let Some(&needed) = edges[node].get(*next) {
                *next += 1;
                match self.order[needed] {
                    None => {
                        self.enter(needed);
                        path.push((needed, 0));
                    }
                    Some(order) if self.is_open[needed] => self.low[node] = self.low[node].min(order),
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                self.low[*before] = self.low[*before].min(self.low[node]);
            }
            if Some(self.low[node]) == self.order[node] {
                let place = self.open.iter().rposition(|open| *open == node).unwrap_or_default();
                let mut group = self.open.split_off(place);
                group.iter().for_each(|member| self.is_open[*member] = false);
                group.sort_unstable();
                self.groups.push(group);
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.order[node] = Some(self.seen);
        self.low[node] = self.seen;
        self.seen += 1;
        self.open.push(node);
        self.is_open[node] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_each_other_is_one_group_and_comes_after_what_it_needs() {
        let edges = [vec![1], vec![2, 3], vec![0], vec![4], vec![], vec![5, 0]];
        assert_eq!(groups(&edges), [vec![4], vec![3], vec![0, 1, 2], vec![5]]);
        assert_eq!(groups(&[]), [[0; 0]; 0]);
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        let edges: Vec<Vec<usize>> = (0..100_000).map(|node| (node + 1..100_000).take(1).collect()).collect();
        assert_eq!(groups(&edges).len(), 100_000);
    }

    proptest::proptest! {
        #[test]
        fn nodes_share_a_group_exactly_when_they_reach_each_other(
            edges in proptest::collection::vec(proptest::collection::vec(0usize..8, 0..4), 8)
        ) {
            let reaches = |from: usize| {
                let mut reached = vec![false; 8];
                let mut open = vec![from];
                while let Some(node) = open.pop() {
                    if !std::mem::replace(&mut reached[node], true) {
                        open.extend(&edges[node]);
                    }
                }
                reached
            };
            let groups = groups(&edges);
            let group_of = |node: usize| groups.iter().position(|group| group.contains(&node));
            for a in 0..8 {
                for b in 0..8 {
                    let both = reaches(a)[b] && reaches(b)[a];
                    proptest::prop_assert_eq!(both, group_of(a) == group_of(b), "{} {}", a, b);
                }
            }
        }
    }
}
