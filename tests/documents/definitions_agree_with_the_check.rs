//! The definitions of `gatepost crd` and the check agree, as far as a schema can describe it.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

#[path = "../definitions/structural.rs"]
mod structural;

use std::{collections::BTreeMap, fs, io, path::Path, sync::OnceLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use gatepost_api::schema::definitions;
use gatepost_config::{SourceFile, load};
use serde_json::{Value, json};

/// The schema of a kind.
fn schema(kind: &str) -> Value {
    let mut definition = definitions().into_iter().find(|one| one["spec"]["names"]["kind"] == kind).expect("known");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// A certificate and its key, the same at every call.
fn certificate() -> &'static (String, String) {
    static MADE: OnceLock<(String, String)> = OnceLock::new();
    MADE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["hook.example.com".to_owned()]).expect("certificate");
        (made.cert.pem(), made.signing_key.serialize_pem())
    })
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    match path.rsplit_once('.') {
        Some((name, "crt")) if !name.ends_with("nowhere") => Ok(certificate().0.clone().into_bytes()),
        Some((_, "token")) => Ok(b"token".to_vec()),
        Some((_, "key")) => Ok(certificate().1.clone().into_bytes()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Problems that the check finds in a document.
fn checked(document: &Value) -> Vec<String> {
    let bytes = Bytes::from(serde_json::to_vec(document).expect("JSON"));
    let problems = load(&[SourceFile { name: "a.json".into(), bytes }], &read).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

/// One line of the table.
struct Row {
    verdict: String,
    document: Value,
}

/// The table of a kind.
fn rows(kind: &str) -> Vec<Row> {
    let text = fs::read_to_string(format!("tests/definitions/{kind}.tsv")).expect("the table is there");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| row(kind, line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

fn row(kind: &str, line: &str) -> Result<Row, String> {
    let mut columns = line.split('\t');
    let (verdict, written) = columns.next().zip(columns.next()).ok_or("a line has two columns at least")?;
    let written = written
        .replace("@HOOK", "@NAME, @CLIENT, @RULES")
        .replace("@NAME", "name: a.example.com")
        .replace("@CLIENT", "clientConfig: {url: 'grpc://127.0.0.1:9001'}")
        .replace("@RULES", "rules: []")
        .replace("@GROUP", "apiGroups: [''], apiVersions: [v1]")
        .replace("@CA", &STANDARD.encode(&certificate().0));
    let options = serde_saphyr::options! { strict_booleans: true };
    let mut document: Value =
        serde_saphyr::from_str_with_options(&written, options).map_err(|error| error.to_string())?;
    document["apiVersion"] = json!("gatepost.dev/v1alpha1");
    document["kind"] = json!(kind);
    document["metadata"] = json!({ "name": "written" });
    Ok(Row { verdict: verdict.into(), document })
}

#[test]
fn the_check_and_the_schema_judge_alike() {
    let seen = judged("AdmissionControlConfiguration");
    assert!(seen["good"] > 50 && seen["shape"] > 50 && seen["rule"] > 30, "{seen:?}");
    let seen = judged("BreakGlass");
    assert!(seen["good"] > 5 && seen["shape"] > 10 && seen["rule"] > 2, "{seen:?}");
}

/// Judges every line of a kind's table; how many there are of each verdict.
fn judged(kind: &str) -> BTreeMap<String, usize> {
    let (schema, mut seen) = (schema(kind), BTreeMap::<String, usize>::new());
    let mut wrong = Vec::new();
    for Row { verdict, document } in rows(kind) {
        let (by_check, by_schema) = (checked(&document), structural::problems(&schema, &document));
        let as_expected = match verdict.as_str() {
            "good" => by_check.is_empty() && by_schema.is_empty(),
            "shape" => !by_check.is_empty() && !by_schema.is_empty(),
            "rule" | "check" => !by_check.is_empty() && by_schema.is_empty(),
            "files" => by_check.is_empty() && !by_schema.is_empty(),
            _ => false,
        };
        if !as_expected {
            wrong.push(format!("{verdict}: {document}\n  the check: {by_check:?}\n  the schema: {by_schema:?}"));
        }
        *seen.entry(verdict).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    seen
}

/// The documents of our own kind in a YAML text.
fn own(text: &str) -> Vec<Value> {
    let documents = serde_saphyr::from_multiple::<Value>(text).expect("YAML");
    documents.into_iter().filter(|document| document["kind"] == "AdmissionControlConfiguration").collect()
}

/// A block of a page, without the indentation of the list that it is in.
fn outdented(block: &str) -> String {
    let lines = || block.lines();
    let indents = lines().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len());
    let indent = indents.min().unwrap_or_default();
    lines().map(|line| line.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_example_fits_the_schema() {
    let schema = schema("AdmissionControlConfiguration");
    let mut texts = Vec::new();
    for folder in fs::read_dir("examples/config").expect("the examples are there") {
        for file in fs::read_dir(folder.expect("readable").path()).expect("a folder") {
            texts.push(fs::read_to_string(file.expect("readable").path()).expect("text"));
        }
    }
    let examples = texts.iter().map(|text| own(text).len()).sum::<usize>();
    let pages = fs::read_dir("docs").expect("docs").map(|page| page.expect("readable").path());
    for page in pages.chain([Path::new("README.md").to_owned()]).filter(|page| page.is_file()) {
        let page = fs::read_to_string(page).expect("text");
        let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        texts.extend(blocks.map(outdented));
    }
    let documents: Vec<_> = texts.iter().flat_map(|text| own(text)).collect();
    assert!(examples >= 3 && documents.len() > examples, "{examples} examples, {} documents", documents.len());
    for document in documents {
        assert_eq!(structural::problems(&schema, &document), Vec::<String>::new(), "{document}");
    }
}
