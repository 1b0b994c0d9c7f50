//! Mixture: the name of a configuration that no state of the source holds, as some of its documents are held back.

use std::{collections::HashSet, fmt::Write as _};

use sha2::{Digest, Sha256};

use crate::snapshot::{HeldBackDocument, Kept};

/// Its digest (hex), which is no source's: of the newest contents, and of the states that stand in for some of them.
pub(super) fn digest(newest: &str, kept: &Kept, held: &[HeldBackDocument]) -> String {
    let mut sha = Sha256::new();
    let mut part = |bytes: &[u8]| {
        sha.update((bytes.len() as u64).to_be_bytes());
        sha.update(bytes);
    };
    part(b"held back");
    part(newest.as_bytes());
    for held in held {
        part(held.file.as_bytes());
        part(&[u8::from(held.keeps)]);
    }
    let names: HashSet<_> = held.iter().map(|held| &*held.file).collect();
    for state in kept.parts().filter(|state| names.contains(&*state.file().name)) {
        part(&state.file().bytes);
        for (path, content) in state.references() {
            part(path.as_bytes());
            part(content);
        }
    }
    sha.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
