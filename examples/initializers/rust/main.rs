//! An initializer in Rust: new Pods get their images by digest.
//!
//! ```text
//! TOKEN=… cargo run --example initializer-rust -- --ca ca.crt registry.example/app:1=registry.example/app@sha256:…
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "what a program says of itself")]

mod stream;

use std::{collections::HashMap, error::Error, path::PathBuf, time::Duration};

use clap::Parser;
use gatepost::wire::pb::gatepost::v1::{Claim, InitializerTask, initializers_client::InitializersClient};
use serde_json::{Value, json};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// Pin the images of new Pods.
#[derive(Parser)]
struct Flags {
    /// Gatepost
    #[arg(long, default_value = "https://127.0.0.1:9440")]
    to: String,
    /// Its authority (PEM), for https
    #[arg(long)]
    ca: Option<PathBuf>,
    /// The name to claim
    #[arg(long, default_value = "digest.example.com")]
    name: String,
    /// IMAGE=IMAGE@sha256:DIGEST
    images: Vec<String>,
}

/// The policy: a JSON Patch of the object, or why it is not to be created. An image that has its digest stays, as a
/// task may come twice.
fn pin(images: &HashMap<&str, &str>, task: &InitializerTask) -> Result<Vec<u8>, String> {
    let request = task.review.as_ref().and_then(|review| review.request.as_ref());
    let raw = request.and_then(|request| request.object.as_ref()?.raw.as_deref()).unwrap_or_default();
    let pod: Value = serde_json::from_slice(raw).map_err(|error| error.to_string())?;
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
                None => return Err(format!("no digest is known of image {image:?}")),
            }
        }
    }
    Ok(Value::from(patch).to_string().into_bytes())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    let images: HashMap<_, _> = flags.images.iter().filter_map(|entry| entry.split_once('=')).collect();
    let mut endpoint = Endpoint::from_shared(flags.to)?;
    if let Some(authority) = &flags.ca {
        let authority = Certificate::from_pem(std::fs::read(authority)?);
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(authority))?;
    }
    let channel = endpoint.connect_lazy();
    let claim = Claim { name: flags.name, token: std::env::var("TOKEN").unwrap_or_default(), window: 0 };
    loop {
        let ended = stream::attach(InitializersClient::new(channel.clone()), &claim, |task| pin(&images, task)).await;
        eprintln!("the stream has ended: {ended:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
