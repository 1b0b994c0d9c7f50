//! Spelling: the known word that somebody probably meant.

/// The word of `known` nearest to `word`, where one is near enough to be worth suggesting.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    /// Longer words are nobody's typing error, and comparing them costs time.
    const LONGEST: usize = 64;
    let lower = word.to_lowercase();
    known
        .iter()
        .filter(|_| word.len() <= LONGEST)
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove or replace to turn one word into the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognized_and_a_different_word_is_not() {
        let known = ["failurePolicy", "rules", "name"];
        assert_eq!(nearest("failurepolicy", &known), Some("failurePolicy"));
        assert_eq!(nearest("failPolicy", &known), Some("failurePolicy"));
        assert_eq!(nearest("rule", &known), Some("rules"));
        assert_eq!(nearest("webhooks", &known), None);
        assert_eq!(nearest(&"n".repeat(100_000), &known), None);
    }
}
