//! Ending: the command that ends what this one has opened.

/// The same command line, with `--end` in the place of what was opened, fit to be pasted.
pub(super) fn command(words: impl Iterator<Item = String>) -> String {
    const VALUES: [&str; 4] = ["--for", "--reason", "--hook", "--by"];
    let mut words = words;
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let flag = word.split('=').next().unwrap_or_default();
        if VALUES.contains(&flag) {
            if flag == word {
                words.next();
            }
        } else if word != "--everything" {
            kept.push(quoted(&word));
        }
    }
    kept.push("--end".to_owned());
    kept.join(" ")
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_opened_is_left_out_and_where_is_kept() {
        let line = [
            "gatepost",
            "break-glass",
            "--for=15m",
            "--reason",
            "a b",
            "--hook",
            "h",
            "--name",
            "x",
            "--everything",
            "--config",
            "/a b",
        ];
        let output = command(line.iter().map(|word| (*word).to_owned()));
        assert_eq!(output, "gatepost break-glass --name x --config '/a b' --end");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
