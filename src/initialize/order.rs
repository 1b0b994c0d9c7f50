//! Order: a total order of initializers that say whom they stand behind.

use std::fmt;

/// Names that wait for each other in a circle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<Box<str>>);

impl fmt::Display for Cycle {
    /// `a after b after a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.first().into_iter();
        let names: Vec<&str> = self.0.iter().chain(first).map(AsRef::as_ref).collect();
        f.write_str(&names.join(" after "))
    }
}

/// The order in which these act, as indices: each behind all that it names, and otherwise as written. Names of none of
/// them are passed by. Time linear in entries and mentions.
///
/// # Errors
/// Some wait for each other.
pub fn order<'a, N, A>(entries: &'a [N], name: impl Fn(&'a N) -> &'a str, after: A) -> Result<Vec<usize>, Cycle>
where
    A: Fn(&'a N) -> &'a [Box<str>],
{
    let places: std::collections::HashMap<&str, usize> =
        entries.iter().enumerate().map(|(at, entry)| (name(entry), at)).collect();
    let waits: Vec<Vec<usize>> = entries
        .iter()
        .map(|entry| after(entry).iter().filter_map(|other| places.get(&**other).copied()).collect())
        .collect();
    let mut walk = Walk { waits: &waits, state: vec![State::New; entries.len()], order: Vec::new() };
    for at in 0..entries.len() {
        if let Some(cycle) = walk.visit(at) {
            return Err(Cycle(cycle.into_iter().map(|at| name(&entries[at]).into()).collect()));
        }
    }
    Ok(walk.order)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    /// Some that it waits for are still looked at.
    Open,
    Placed,
}

struct Walk<'a> {
    waits: &'a [Vec<usize>],
    state: Vec<State>,
    order: Vec<usize>,
}

impl Walk<'_> {
    /// Places an entry behind all that it waits for; the circle that it stands in, where it does. Does not recurse: the
    /// list is whoever writes the configuration's.
    fn visit(&mut self, first: usize) -> Option<Vec<usize>> {
        if self.state[first] == State::Placed {
            return None;
        }
        let waits = self.waits;
        let mut path = vec![(first, waits[first].iter())];
        self.state[first] = State::Open;
        while let Some((at, waited)) = path.last_mut() {
            let at = *at;
            match waited.next() {
                None => {
                    self.state[at] = State::Placed;
                    self.order.push(at);
                    path.pop();
                }
                Some(&next) => match self.state[next] {
                    State::Placed => {}
                    State::New => {
                        self.state[next] = State::Open;
                        path.push((next, waits[next].iter()));
                    }
                    State::Open => {
                        let circle = path.iter().map(|(at, _)| *at).skip_while(|at| *at != next);
                        return Some(circle.collect());
                    }
                },
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entry = (&'static str, Vec<Box<str>>);

    fn ordered(entries: &[Entry]) -> Result<Vec<&str>, String> {
        let order = order(entries, |entry| entry.0, |entry| &entry.1).map_err(|cycle| cycle.to_string())?;
        Ok(order.into_iter().map(|at| entries[at].0).collect())
    }

    #[test]
    fn each_stands_behind_all_that_it_names_and_otherwise_as_written() {
        let entry = |name, after: &[&str]| (name, after.iter().map(|name| Box::from(*name)).collect());
        assert_eq!(ordered(&[entry("a", &[]), entry("b", &[])]).unwrap(), ["a", "b"]);
        assert_eq!(ordered(&[entry("a", &["c"]), entry("b", &[]), entry("c", &[])]).unwrap(), ["c", "a", "b"]);
        assert_eq!(ordered(&[entry("a", &["b", "c"]), entry("b", &["c"]), entry("c", &[])]).unwrap(), ["c", "b", "a"]);
        assert_eq!(ordered(&[entry("a", &["a"])]).unwrap_err(), "a after a");
        let circle = [entry("x", &["a"]), entry("a", &["b"]), entry("b", &["c"]), entry("c", &["a"])];
        assert_eq!(ordered(&circle).unwrap_err(), "a after b after c after a");
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        let names: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let entries: Vec<(&str, Vec<Box<str>>)> =
            names.windows(2).map(|pair| (&*pair[0], vec![Box::from(&*pair[1])])).collect();
        let order = order(&entries, |entry| entry.0, |entry| &entry.1).unwrap();
        assert_eq!((order.len(), order[0]), (entries.len(), entries.len() - 1));
    }
}
