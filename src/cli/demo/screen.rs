//! Printed output: calm, aligned, in colour only on a terminal.

use std::{
    env,
    io::{self, IsTerminal, Write},
    time::Duration,
};

/// Columns that a line may take.
const WIDTH: usize = 96;
/// Column of the text behind a label.
const INDENT: usize = 13;

/// Colour of a piece of text.
#[derive(Clone, Copy)]
pub(super) enum Tint {
    Heading,
    Good,
    Bad,
    Label,
}

impl Tint {
    const fn code(self) -> &'static str {
        match self {
            Self::Heading => "1",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Label => "2",
        }
    }
}

/// Standard output.
pub(super) struct Screen {
    colour: bool,
}

impl Screen {
    /// In colour on a terminal, unless `NO_COLOR` is set to something.
    pub(super) fn new() -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: io::stdout().is_terminal() && !refused }
    }

    fn tinted(&self, tint: Tint, text: &str) -> String {
        if self.colour { format!("\x1b[{}m{text}\x1b[0m", tint.code()) } else { text.to_owned() }
    }

    /// One line.
    pub(super) fn line(&self, text: &str) {
        // A reader that closed our output (`| head`) has seen enough.
        let _ = writeln!(io::stdout(), "{text}");
    }

    /// A chapter's heading.
    pub(super) fn heading(&self, text: &str) {
        self.line("");
        self.line(&self.tinted(Tint::Heading, text));
    }

    /// Line for one review: its object, its size, and its outcome.
    pub(super) fn verdict(&self, what: &str, bytes: usize, (tint, word): (Tint, &str)) {
        let size = format!("{} bytes", grouped(bytes as u64));
        self.line("");
        self.line(&format!("  {what:<60}{size:>16}  {}", self.tinted(tint, word)));
    }

    /// A label and its text, broken into lines where it is long.
    pub(super) fn field(&self, label: &str, text: &str) {
        for (index, line) in wrapped(text, WIDTH - INDENT).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let label = self.tinted(Tint::Label, &format!("    {label:<width$}", width = INDENT - 4));
            self.line(&format!("{label}{line}"));
        }
    }
}

/// Broken between words; a word that is too long stands alone.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// `512034` as `512,034`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// In milliseconds, as many digits as mean something.
pub(super) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lines() {
        assert_eq!([0, 999, 1000, 512_034].map(grouped), ["0", "999", "1,000", "512,034"]);
        assert_eq!(wrapped("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrapped("aaaaaaaa b", 5), ["aaaaaaaa", "b"]);
        assert_eq!([500, 12_345].map(|micros| millis(Duration::from_micros(micros))), ["0.50 ms", "12 ms"]);
    }
}
