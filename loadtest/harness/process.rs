//! Process: a child that is pinned, listened to, watched through /proc, and gone when it is dropped.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use crate::Fallible;

/// Time for a child to print its address.
const START: Duration = Duration::from_secs(20);

/// A running child; killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: String,
    lines: Receiver<String>,
    complaints: PathBuf,
}

impl Process {
    /// Starts `command`; what it writes to standard error goes to `folder/NAME.stderr`.
    pub(crate) fn start(name: &str, mut command: Command, folder: &Path) -> Fallible<Self> {
        let complaints = folder.join(format!("{name}.stderr"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&complaints)?);
        let mut child = command.spawn().map_err(|error| format!("{name} does not start: {error}: {command:?}"))?;
        let output = child.stdout.take().ok_or("a child without standard output")?;
        let (send, lines) = channel();
        // Reads to the end even when nobody listens any more, so that a talkative child never blocks.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Ok(Self { child, name: name.to_owned(), lines, complaints })
    }

    /// Waits for the line `listening ROLE ADDRESS`.
    pub(crate) fn address(&self, role: &str) -> Fallible<SocketAddr> {
        Ok(self.line(&format!("listening {role} "))?.parse()?)
    }

    /// Waits for a line that begins so; the rest of it.
    pub(crate) fn line(&self, beginning: &str) -> Fallible<String> {
        loop {
            let line = self.lines.recv_timeout(START).map_err(|_| {
                let said = fs::read_to_string(&self.complaints).unwrap_or_default();
                format!("{} did not say {beginning:?}; it said: {said}", self.name)
            })?;
            if let Some(rest) = line.strip_prefix(beginning) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    /// The process id; pinning replaces itself, so it is the program's own.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs `program` on `core` only, where there is a core to give.
pub(crate) fn pinned(core: Option<usize>, program: &Path) -> Command {
    match core {
        Some(core) => {
            let mut command = Command::new("taskset");
            command.arg("-c").arg(core.to_string()).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// User and system time of a whole process, all its threads: fields 14 and 15 of /proc/PID/stat, in ticks of 10 ms.
pub(crate) fn cpu_time(pid: u32) -> Fallible<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command name may hold spaces; what follows its closing bracket may not.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse().unwrap_or(0)).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// The most resident memory a process ever had, in bytes.
pub(crate) fn peak_resident(pid: u32) -> Fallible<u64> {
    status(pid, "VmHWM:")
}

/// The resident memory of a process now, in bytes.
pub(crate) fn resident(pid: u32) -> Fallible<u64> {
    status(pid, "VmRSS:")
}

/// A size in /proc/PID/status.
fn status(pid: u32, field: &str) -> Fallible<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or(format!("no {field} in /proc"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kibibytes << 10)
}
