//! A `gatepost serve` process, and what `/proc` says of it.

use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::attack::{BUDGET, Serve};

/// A running sidecar, killed when it is dropped.
pub struct Process {
    child: Child,
    pub tcp: SocketAddr,
    pub admin: SocketAddr,
    log: PathBuf,
    /// Bytes of log that were written and read.
    logged: Arc<AtomicU64>,
    stalled: Arc<AtomicBool>,
}

impl Process {
    /// Starts over the configuration in that folder, and waits until it is ready.
    pub fn start(configuration: &Path, audit: &Path, log: PathBuf, serve: Serve) -> Self {
        let descriptors = serve.descriptors.map_or(String::new(), |most| format!("ulimit -n {most}; "));
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{descriptors}exec \"$0\" \"$@\"")).arg(program());
        command.args(["serve", "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command
            .arg("--config")
            .arg(configuration)
            .arg("--audit-log")
            .arg(audit)
            .arg("--uds")
            .arg(audit.with_extension("sock"));
        let usual = [
            ("--max-inflight-bytes", BUDGET.to_string()),
            ("--max-deadline", "3s".to_owned()),
            ("--workers", "2".to_owned()),
        ];
        for (flag, value) in usual {
            if !serve.arguments.contains(&flag) {
                command.args([flag, &value]);
            }
        }
        command.args(serve.arguments).env_remove("GATEPOST_LOG");
        // The allocator gives back at once what is freed, so that what is resident is what is held. As shipped it keeps
        // some of it for a while: `loadtest/memory` measures that.
        command.env("MIMALLOC_PURGE_DELAY", "0");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gatepost starts");
        let logged = Arc::new(AtomicU64::new(0));
        let stalled = Arc::new(AtomicBool::new(false));
        let stderr = child.stderr.take().expect("standard error");
        keep(stderr, File::create(&log).expect("log"), Arc::clone(&logged), Arc::clone(&stalled));
        let mut lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
        let (mut tcp, mut admin) = (None, None);
        loop {
            let line = match lines.next() {
                Some(Ok(line)) => line,
                _ => panic!("it did not become ready: {}", fs::read_to_string(&log).unwrap_or_default()),
            };
            let address =
                |role: &str| line.strip_prefix(&format!("listening {role} ")).and_then(|text| text.parse().ok());
            tcp = tcp.or(address("tcp"));
            admin = admin.or(address("admin"));
            if line.starts_with("ready ") {
                break;
            }
        }
        let (tcp, admin) = (tcp.expect("an address"), admin.expect("an address"));
        Self { child, tcp, admin, log, logged, stalled }
    }

    /// Reads no more of the log.
    pub fn stall_log(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// Reads the log from now on, where it was not read.
    pub fn read_log(&self) {
        self.stalled.store(false, Ordering::Relaxed);
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub fn logged(&self) -> u64 {
        self.logged.load(Ordering::Relaxed)
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap_or_default() << 10
    }

    /// Resident bytes.
    pub fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most resident bytes ever.
    pub fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// User and system time so far: fields 14 and 15 of /proc/PID/stat, in ticks of 10 ms.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Answer of an admin page, within that time.
    pub fn page(&self, path: &str, within: Duration) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&self.admin, within).ok()?;
        stream.set_read_timeout(Some(within)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Does it say that it is alive?
    pub fn lives(&self) -> bool {
        self.page("/livez", Duration::from_secs(3)).is_some_and(|page| page.starts_with("HTTP/1.1 200"))
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let _ = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
    }

    /// Exit status, where it has ended within that time.
    pub fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() > until {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sidecar that is attacked: this build's, or another one that `$GATEPOST` names.
fn program() -> PathBuf {
    env::var_os("GATEPOST").map_or_else(|| env!("CARGO_BIN_EXE_gatepost").into(), PathBuf::from)
}

/// Keeps what is said, up to some size; counts all of it.
fn keep(mut from: ChildStderr, mut to: File, logged: Arc<AtomicU64>, stalled: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            while stalled.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
            }
            let Ok(read @ 1..) = from.read(&mut buffer) else { return };
            if logged.fetch_add(read as u64, Ordering::Relaxed) < 8 << 20 {
                let _ = to.write_all(&buffer[..read]);
            }
        }
    });
}
