//! Arguments: command line of `cargo test`, and of people.

/// Options of the usual test harness that are followed by a value of their own.
const WITH_VALUE: [&str; 6] = ["--test-threads", "--skip", "--format", "--color", "--logfile", "-Z"];

/// Arguments of the command line.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// Only say what there is.
    pub(crate) list: bool,
    /// Only files with one of these in their name; none means all.
    pub(crate) words: Vec<String>,
}

impl Arguments {
    /// Every option of the usual harness but `--list` is accepted and means nothing here.
    pub(crate) fn of(arguments: impl Iterator<Item = String>) -> Self {
        let mut said = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            if argument == "--list" {
                said.list = true;
            } else if WITH_VALUE.contains(&&*argument) {
                arguments.next();
            } else if !argument.starts_with('-') {
                said.words.push(argument);
            }
        }
        said
    }

    /// Is this file to be run?
    pub(crate) fn chooses(&self, file: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| file.contains(&**word) || word == "conformance")
    }
}
