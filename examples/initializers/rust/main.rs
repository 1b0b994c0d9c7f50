//! An initializer in Rust: new Pods get their images by digest.
//!
//! ```text
//! TOKEN=… cargo run --example initializer-rust -- --ca ca.crt registry.example/app:1=registry.example/app@sha256:…
//! ```
#![forbid(unsafe_code)]

use std::{collections::HashMap, error::Error, fs, path::PathBuf, sync::Arc};

use clap::Parser;
use gatepost_client::{InitializerClient, NewObject, ObjectChange, ObjectRefusal};
use serde_json::{Value, json};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// Pin the images of new Pods.
#[derive(Parser)]
struct Flags {
    /// Gatepost; once for each replica
    #[arg(long, default_value = "https://127.0.0.1:9440")]
    to: Vec<String>,
    /// Its authority (PEM), for https
    #[arg(long)]
    ca: Option<PathBuf>,
    /// The name to claim
    #[arg(long, default_value = "digest.example.com")]
    name: String,
    /// IMAGE=IMAGE@sha256:DIGEST
    images: Vec<String>,
}

/// The policy. An image that has its digest stays, as an object may come twice.
fn pin(images: &HashMap<String, String>, object: &NewObject) -> Result<ObjectChange, ObjectRefusal> {
    let pod: Value = object.read()?;
    let mut patch = Vec::new();
    for field in ["initContainers", "containers"] {
        for (at, container) in pod["spec"][field].as_array().into_iter().flatten().enumerate() {
            let image = container["image"].as_str().unwrap_or_default();
            match images.get(image) {
                Some(digest) => {
                    let path = format!("/spec/{field}/{at}/image");
                    patch.push(json!({"op": "replace", "path": path, "value": digest}));
                }
                None if image.contains('@') => {}
                None => return Err(format!("no digest is known of image {image:?}").into()),
            }
        }
    }
    Ok(ObjectChange::patch(&patch.into()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let flags = Flags::parse();
    let pairs = flags.images.iter().filter_map(|entry| entry.split_once('='));
    let images = Arc::new(pairs.map(|(image, digest)| (image.to_owned(), digest.to_owned())).collect());
    let mut sidecars = Vec::new();
    for address in flags.to {
        let mut endpoint = Endpoint::from_shared(address)?;
        if let Some(authority) = &flags.ca {
            let authority = Certificate::from_pem(fs::read(authority)?);
            endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(authority))?;
        }
        sidecars.push(endpoint.connect_lazy());
    }
    let act = move |object| {
        let images = Arc::clone(&images);
        async move { pin(&images, &object) }
    };
    let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    InitializerClient::new(flags.name, std::env::var("TOKEN").unwrap_or_default()).run(sidecars, act, stop).await;
    Ok(())
}
