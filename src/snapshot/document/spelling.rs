//! Spelling: the known word that somebody probably meant.

/// The word of `known` nearest to `word`, where one is near enough to be worth suggesting.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    /// Longer words are nobody's typing error, and comparing them costs time.
    const LONGEST: usize = 64;
    near(word, known, LONGEST).min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// The words of `known` that are near enough to `word` to be worth suggesting, at most three, the nearest first. Words
/// are as long as names of hooks may be.
pub fn nearest_words<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    const LONGEST: usize = 253;
    const MOST: usize = 3;
    let mut near: Vec<_> = near(word, known, LONGEST).collect();
    near.sort_by_key(|(distance, _)| *distance);
    // A word that is twice as far off as the nearest was hardly meant.
    let most = near.first().map_or(0, |(distance, _)| distance * 2);
    near.into_iter().take_while(|(distance, _)| *distance <= most).map(|(_, candidate)| candidate).take(MOST).collect()
}

fn near<'a>(word: &str, known: &[&'a str], longest: usize) -> impl Iterator<Item = (usize, &'a str)> {
    let (lower, short) = (word.to_lowercase(), word.len() <= longest);
    known
        .iter()
        .filter(move |candidate| short && candidate.len() <= longest)
        .map(move |candidate| (distance(&lower, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
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

    #[test]
    fn of_several_near_words_the_nearest_come_first_and_those_far_off_are_left_out() {
        let known = ["no-root.example.com", "no-latests.example.com", "no-latest.example.com", "quota.example.com"];
        assert_eq!(nearest_words("no-latst.example.com", &known), ["no-latest.example.com", "no-latests.example.com"]);
        assert_eq!(nearest_words("something-else.org", &known), [""; 0]);
    }
}
