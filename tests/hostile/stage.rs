//! Stage: a sidecar over hooks, with a bystander's hook among them.

use std::{
    fs::{self, File},
    io::Read,
    path::PathBuf,
    process::Command,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{attack::Serve, bystander, hook::Hook, notes::Notes, process::Process};

/// Sidecar, hooks and folder of an attack.
pub struct Stage {
    pub process: Process,
    pub hooks: Vec<Hook>,
    pub notes: Notes,
    folder: TempDir,
    stalled_audit: bool,
}

impl Stage {
    pub fn set(notes: Notes, mut hooks: Vec<Hook>, serve: Serve) -> Self {
        hooks.insert(0, Hook::good(bystander::HOOK, &notes).of(bystander::RESOURCE).within("3s"));
        let folder = tempfile::tempdir().expect("folder");
        fs::create_dir(folder.path().join("configuration")).expect("folder");
        let document = document(&hooks);
        let audit = folder.path().join("audit.jsonl");
        fs::write(folder.path().join("configuration/hooks.json"), document).expect("written");
        if serve.stalled_audit {
            assert!(pipe(&audit), "a pipe");
            // A reader has to be there for it to be opened; it never reads.
            thread::spawn({
                let audit = audit.clone();
                move || {
                    let _held = File::open(audit);
                    thread::sleep(Duration::from_secs(60));
                }
            });
        }
        let configuration = folder.path().join("configuration");
        let process = Process::start(&configuration, &audit, folder.path().join("stderr"), serve);
        Self { process, hooks, notes, folder, stalled_audit: serve.stalled_audit }
    }

    /// Path of the configuration.
    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("configuration/hooks.json")
    }

    /// Content of the configuration.
    pub fn document(&self) -> String {
        document(&self.hooks)
    }

    /// The lines of the audit log.
    fn audit(&self) -> Vec<Value> {
        let mut text = String::new();
        if !self.stalled_audit {
            let _ =
                File::open(self.folder.path().join("audit.jsonl")).and_then(|mut file| file.read_to_string(&mut text));
        }
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Reviews that were allowed although a hook that matches and may not be passed over has not said yes to them; and
    /// how many were allowed.
    pub fn allowed_without_a_yes(&self) -> (Vec<String>, usize) {
        let lines = self.audit();
        let allowed: Vec<&Value> = lines.iter().filter(|line| line["allowed"] == true).collect();
        let wrong = allowed.iter().filter_map(|line| {
            let (uid, resource) =
                (line["uid"].as_str().unwrap_or_default(), line["resource"].as_str().unwrap_or_default());
            let must: Vec<&Hook> = self.hooks.iter().filter(|hook| hook.must_approve(resource)).collect();
            let message = |hook: &&Hook| {
                let name = format!("{}.example.com", hook.name);
                let entries = line["hooks"].as_array().into_iter().flatten();
                entries.filter(|entry| entry["hook"] == name.as_str()).any(|entry| entry["outcome"] == "allowed")
            };
            let missing = must.iter().find(|hook| !message(hook) || !self.notes.approved(hook.name, uid))?;
            Some(format!("{uid} was allowed without a yes of {}: {line}", missing.name))
        });
        (wrong.collect(), allowed.len())
    }

    /// A caller's own answer: was it allowed although nobody said yes?
    pub fn check_allowed(&self, uid: &str, resource: &str) -> Result<(), String> {
        let missing = self.hooks.iter().filter(|hook| hook.must_approve(resource));
        match missing.filter(|hook| !self.notes.approved(hook.name, uid)).map(|hook| hook.name).next() {
            Some(hook) => Err(format!("{uid} came back allowed without a yes of {hook}")),
            None => Ok(()),
        }
    }
}

/// The configuration of these hooks.
fn document(hooks: &[Hook]) -> String {
    let document = json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": "hostile"},
        "externalAdmissionHooks": hooks.iter().map(Hook::entry).collect::<Vec<_>>(),
    });
    document.to_string()
}

/// Makes a named pipe.
pub fn pipe(path: &std::path::Path) -> bool {
    Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success())
}
