//! Documents: configurations as people would write them, compiled.

use gatepost_config::{Snapshot, SourceFile, load};
use serde_json::{Value, json};

/// The snapshot of these documents, each a file of its own.
pub(crate) fn snapshot(documents: &[Value]) -> Result<Snapshot, String> {
    let file = |(index, document): (usize, &Value)| SourceFile {
        name: format!("{index}.json"),
        bytes: document.to_string().into(),
    };
    let files: Vec<SourceFile> = documents.iter().enumerate().map(file).collect();
    load(&files, &|_: &str| Err(std::io::ErrorKind::NotFound.into())).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        format!("the configuration is refused: {}", problems.join("; "))
    })
}

/// A configuration of ours with these hooks.
pub(crate) fn configuration(hooks: Value) -> Value {
    json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": "vectors"},
        "externalAdmissionHooks": hooks,
    })
}
