//! Answers and reviews that contradict themselves.

use std::time::Duration;

use gatepost_wire::pb::k8s::io::{
    api::admission::v1::{AdmissionRequest, AdmissionReview},
    apimachinery::pkg::apis::meta::v1::GroupVersionKind,
};
use prost::Message;

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::{
        caller::{Answer, Caller, REVIEW},
        http2,
        peer::{Peer, framed, yes},
        reviews,
    },
    hook::{Hook, greeted},
    stage::Stage,
};

type Fields = &'static [(&'static str, &'static str)];

const OK: (&str, &str) = (":status", "200");
const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// The head and the trailers around a message that says yes.
const CONTRADICTIONS: [(&str, Fields, Fields); 8] = [
    ("grpc-status 0 and 13", &[OK, GRPC], &[("grpc-status", "0"), ("grpc-status", "13")]),
    ("grpc-status 13 and 0", &[OK, GRPC], &[("grpc-status", "13"), ("grpc-status", "0")]),
    ("13 in the head, 0 behind", &[OK, GRPC, ("grpc-status", "13")], &[("grpc-status", "0")]),
    ("0 in the head, 13 behind", &[OK, GRPC, ("grpc-status", "0")], &[("grpc-status", "13")]),
    (":status twice", &[OK, (":status", "500"), GRPC], &[("grpc-status", "0")]),
    ("no content-type", &[OK], &[("grpc-status", "0")]),
    ("content-type text/html", &[OK, ("content-type", "text/html")], &[("grpc-status", "0")]),
    ("no grpc-status", &[OK, GRPC], &[("server", "x")]),
];

/// A message that says yes, and fields that do not.
pub fn contradictions() -> Attack {
    Attack {
        name: "contradictory-trailers",
        item: "40",
        hooks: |notes| {
            let notes = notes.clone();
            let script = greeted(move |mut peer: Peer| {
                while let Ok(asked) = peer.asked() {
                    let number = asked.uid.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(0_usize);
                    let (name, head, trailers) = CONTRADICTIONS[number % CONTRADICTIONS.len()];
                    notes.count(&format!("played {name}"));
                    let mut bytes =
                        http2::frame(http2::HEADERS, http2::END_HEADERS, asked.stream, &http2::fields(head));
                    bytes.extend(http2::frame(http2::DATA, 0, asked.stream, &framed(yes(&asked.uid))));
                    let ends = http2::END_HEADERS | http2::END_STREAM;
                    bytes.extend(http2::frame(http2::HEADERS, ends, asked.stream, &http2::fields(trailers)));
                    peer.send(&bytes);
                }
            });
            vec![Hook::grpc("liar", script)]
        },
        serve: Serve::PLAIN,
        during: |stage| {
            let reviews = 2 * CONTRADICTIONS.len() as u32;
            let tally = press::pods(stage, Press { reviews, at_once: 1, ..Press::USUAL })?;
            match (tally.allowed, tally.denied) {
                (0, denied) if denied == reviews => Ok(tally.said()),
                _ => Err(tally.said()),
            }
        },
        bounds: Bounds::USUAL,
    }
}

/// Reviews whose kind says that nobody is to be asked, and whose resource is pods; and a message field given twice, of
/// which the second brings a group in. A hook that must approve hears of none of it, or says nothing.
pub fn kinds_that_do_not_belong() -> Attack {
    Attack {
        name: "kinds-that-do-not-belong",
        item: "40",
        hooks: |_| {
            vec![
                Hook::grpc("silent", |mut peer: Peer| {
                    let _ = peer.greet(&[]);
                    while peer.asked().is_ok() {}
                })
                .within("50ms"),
            ]
        },
        serve: Serve::PLAIN,
        during: mismatched,
        bounds: Bounds::USUAL,
    }
}

fn mismatched(stage: &Stage) -> Result<String, String> {
    let kind = |group: &str, version: &str, kind: &str| {
        let text = |text: &str| Some(text.to_owned());
        Some(GroupVersionKind { group: text(group), version: text(version), kind: text(kind) })
    };
    let exempt = [
        ("authentication.k8s.io", "v1", "TokenReview"),
        ("authorization.k8s.io", "v1", "SubjectAccessReview"),
        ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
        ("gatepost.dev", "v1alpha1", "AdmissionControlConfiguration"),
    ];
    let encoded =
        |request: AdmissionRequest| AdmissionReview { request: Some(request), response: None }.encode_to_vec();
    let mut reviews: Vec<(String, Vec<u8>)> = Vec::new();
    for (group, version, name) in exempt {
        let uid = format!("mismatched-{name}");
        let mut request = reviews::request(&uid, "pods", 200);
        request.kind = kind(group, version, name);
        reviews.push((uid, encoded(request)));
        // The same by a second `kind` that is merged into the first.
        let uid = format!("merged-{name}");
        let request = reviews::request(&uid, "pods", 200);
        let again = AdmissionRequest { kind: kind(group, version, name), ..Default::default() };
        reviews.push((uid, [encoded(request), encoded(again)].concat()));
        // The resource's group, by itself and merged in.
        let uid = format!("grouped-{name}");
        let mut request = reviews::request(&uid, "pods", 200);
        request.resource.get_or_insert_default().group = Some(group.to_owned());
        reviews.push((uid, encoded(request)));
        let uid = format!("moved-{name}");
        let request = reviews::request(&uid, "pods", 200);
        let resource = reviews::field(3, &reviews::field(1, group.as_bytes()));
        reviews.push((uid, [encoded(request), reviews::field(1, &resource)].concat()));
    }
    let mut caller = Caller::connect(stage.process.tcp).ok_or("not let in")?;
    let mut allowed = Vec::new();
    for (uid, message) in &reviews {
        let stream = caller.begin(REVIEW, "2S");
        let until = std::time::Instant::now() + Duration::from_secs(2);
        caller.body(stream, &reviews::grpc_message(message), 16_384, true, until);
        if caller.answer(stream, Duration::from_secs(4)) == Answer::Allowed {
            allowed.push(uid.as_str());
        }
    }
    match allowed.is_empty() {
        true => Ok(format!("{} reviews", reviews.len())),
        false => Err(format!("allowed beside a hook that must approve pods: {}", allowed.join(", "))),
    }
}
