//! The generated Rust under `crates/wire/src/pb/` and `crates/etcd-client/src/pb/` is what `proto/` says.
//!
//! `GATEPOST_REGENERATE=1 cargo test --test documents proto_is_current` writes it anew. No `protoc` is needed.

#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{collections::BTreeMap, fs, path::Path};

use tonic_prost_build::Builder;

const SERVICE: &[&str] = &["gatepost/v1/admission.proto"];
const SERVICES: &[&str] = &[
    "gatepost/v1/admission.proto",
    "gatepost/v1/initialization.proto",
    "gatepost/v1/initializers.proto",
    "gatepost/v1/protobuf_admission.proto",
    "gatepost/v1/rule_index.proto",
];
const ETCD: &[&str] = &["etcd/api/etcdserverpb/rpc.proto"];

/// The Rust that files of `proto/` generate: file name to content.
fn generate(services: &[&str], adjust: impl FnOnce(Builder) -> Builder) -> BTreeMap<String, Vec<u8>> {
    let files = protox::compile(services, ["proto"]).expect("proto/ compiles");
    let out = tempfile::tempdir().expect("temporary folder");
    let builder = tonic_prost_build::configure().out_dir(out.path()).build_transport(false).include_file("mod.rs");
    adjust(builder).compile_fds(files).expect("Rust is generated");
    fs::read_dir(out.path())
        .expect("listing")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .map(|path| {
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("readable"))
        })
        .collect()
}

/// The descriptor set that gRPC reflection serves.
fn descriptors() -> Vec<u8> {
    use prost::Message;
    protox::compile(SERVICES, ["proto"]).expect("proto/ compiles").encode_to_vec()
}

fn compare(folder: &str, expected: &BTreeMap<String, Vec<u8>>) {
    let folder = Path::new(folder);
    if std::env::var_os("GATEPOST_REGENERATE").is_some() {
        fs::create_dir_all(folder).expect("folder");
        for (name, content) in expected {
            fs::write(folder.join(name), content).expect("written");
        }
    }
    for (name, content) in expected {
        let committed = fs::read(folder.join(name)).unwrap_or_default();
        assert!(
            committed == *content,
            "{}/{name} is not what proto/ generates; run GATEPOST_REGENERATE=1 cargo test --test documents proto_is_current",
            folder.display()
        );
    }
    let stray: Vec<_> = fs::read_dir(folder)
        .expect("listing")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !expected.contains_key(name))
        .collect();
    assert!(stray.is_empty(), "files that proto/ does not generate: {stray:?}");
}

#[test]
fn committed_rust_equals_generated_code() {
    let mut expected = generate(SERVICES, |builder| builder.bytes(".").btree_map("."));
    expected.insert("descriptors.bin".into(), descriptors());
    compare("crates/wire/src/pb", &expected);
}

/// The naive reference of the benches and the load test decodes objects into `Vec<u8>`, as most people would.
#[test]
fn naive_reference_equals_generated_code() {
    compare("loadtest/naive/pb", &generate(SERVICE, |builder| builder));
}

/// We only ask etcd; nothing here answers in its place.
#[test]
fn etcd_client_equals_generated_code() {
    compare("crates/etcd-client/src/pb", &generate(ETCD, |builder| builder.bytes(".").build_server(false)));
}
