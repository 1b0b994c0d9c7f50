//! Listeners: the sockets of a sidecar. TCP ports are bound before the source is read, the unix socket afterwards.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use socket2::Socket;

use crate::front::{
    Listener,
    accept::listener::{self, SharedPort},
};
use gatepost_tls::ServerTls;

/// Mode of the unix socket: owner and group can connect. The containers of a pod share the group by `fsGroup`.
const UDS_MODE: u32 = 0o660;

/// Reasons why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The operating system returned an error.
    #[error("cannot listen on {address}: {cause}")]
    Refused {
        /// The address.
        address: String,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// Other machines could read and forge reviews.
    #[error(
        "will not listen on {address} ({flag}) in plaintext: it is open to other machines, and reviews carry whole objects. Listen on \
         a loopback address or a unix socket, or give --tls-cert FILE and --tls-key FILE"
    )]
    Insecure {
        /// The flag that gave the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Another process listens on the port and does not share it.
    #[error(
        "another process listens on {0} and does not share it: both have to be started with --reuse-port, by the same user"
    )]
    NotShared(SocketAddr),
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket; remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// Another process listens on the socket.
    #[error("another process listens on {}; stop it, or choose another path", .0.display())]
    InUse(PathBuf),
}

/// Bound TCP port, nonblocking.
#[derive(Debug)]
pub enum Port {
    /// Port of this process alone. It listens immediately: connections that arrive during the start are accepted after
    /// it.
    Own(TcpListener),
    /// Port that is bound but does not listen yet: until it does, another instance gets all connections.
    Shared(Socket),
}

impl Port {
    /// Binds the address that `flag` gives; if `shared`, beside other instances that share the port.
    ///
    /// # Errors
    /// Returns `Refused`, `NotShared`, or `Insecure` if other machines can reach the address and `tls` is false.
    pub fn bind(flag: &'static str, address: SocketAddr, tls: bool, shared: bool) -> Result<Self, BindError> {
        if !is_local(address) && !tls {
            return Err(BindError::Insecure { flag, address });
        }
        let refused = |cause| BindError::Refused { address: address.to_string(), cause };
        if shared {
            return listener::bind_shared(address).map(Self::Shared).map_err(|cause| match cause.kind() {
                io::ErrorKind::AddrInUse => BindError::NotShared(address),
                _ => refused(cause),
            });
        }
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Self::Own(listener))
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Own(listener) => listener.local_addr(),
            Self::Shared(socket) => socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the socket for callers. A shared port listens `immediately`, or once reviews can be decided. Must be
    /// called on a runtime.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn for_callers(self, tls: Option<Arc<ServerTls>>, immediately: bool) -> io::Result<Listener> {
        let bound = move |listener| match tls {
            Some(tls) => Listener::Tls(listener, tls),
            None => Listener::Tcp(listener),
        };
        match self {
            Self::Own(listener) => tokio::net::TcpListener::from_std(listener).map(bound),
            Self::Shared(socket) if immediately => listener::listen(socket).map(bound),
            Self::Shared(socket) => Ok(Listener::Shared(SharedPort::new(move || listener::listen(socket).map(bound)))),
        }
    }

    /// Returns the listener for operators, which listens immediately. Must be called on a runtime.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn for_operators(self) -> io::Result<tokio::net::TcpListener> {
        match self {
            Self::Own(listener) => tokio::net::TcpListener::from_std(listener),
            Self::Shared(socket) => listener::listen(socket),
        }
    }
}

/// Returns true if only this machine can reach the address.
pub fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Bound unix socket, nonblocking, for owner and group.
#[derive(Debug)]
pub enum UnixPort {
    /// Socket of this process alone.
    Own(UnixListener, PathBuf),
    /// Socket at a temporary path. It replaces the socket of another instance later.
    Shared(PendingSocket),
}

/// Socket at a temporary path that will replace another socket.
#[derive(Debug)]
pub struct PendingSocket {
    listener: Option<UnixListener>,
    /// Temporary path, and below it the final one.
    now: PathBuf,
    path: PathBuf,
}

impl UnixPort {
    /// Binds the socket. A socket on which no process listens is replaced. If `shared`, the socket of another instance
    /// will be replaced, too; that instance keeps its connections.
    ///
    /// # Errors
    /// Returns `Refused`, `NotASocket` or `InUse`.
    pub fn bind(path: &Path, shared: bool) -> Result<Self, BindError> {
        let refused = |cause| BindError::Refused { address: path.display().to_string(), cause };
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
            _ if shared => return PendingSocket::bind(path).map(Self::Shared).map_err(refused),
            Ok(_) => match UnixStream::connect(path) {
                Ok(_) => return Err(BindError::InUse(path.to_owned())),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(refused)?;
                }
                Err(error) => return Err(refused(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(error)),
        }
        open(path).map(|listener| Self::Own(listener, path.to_owned())).map_err(refused)
    }

    /// Returns the socket for callers, and the file to remove at the end. A shared socket replaces the other one
    /// `immediately`, or once reviews can be decided. Must be called on a runtime.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn for_callers(self, immediately: bool) -> io::Result<(Listener, SocketFile)> {
        let (path, beside) = match self {
            Self::Own(listener, path) => {
                let file = SocketFile::new(path);
                file.record_identity();
                return Ok((Listener::Unix(tokio::net::UnixListener::from_std(listener)?), file));
            }
            Self::Shared(beside) => (beside.path.clone(), beside),
        };
        let file = SocketFile::new(path);
        let ours = file.clone();
        let open = move || {
            let listener = beside.replace_path()?;
            ours.record_identity();
            Ok(Listener::Unix(tokio::net::UnixListener::from_std(listener)?))
        };
        let bound = if immediately { open()? } else { Listener::Shared(SharedPort::new(open)) };
        Ok((bound, file))
    }
}

fn open(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(UDS_MODE))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl PendingSocket {
    fn bind(path: &Path) -> io::Result<Self> {
        let mut now = path.as_os_str().to_owned();
        now.push(format!(".{}", std::process::id()));
        let now = PathBuf::from(now);
        // Left by a killed process with our process id.
        let _ = fs::remove_file(&now);
        let listener = Some(open(&now)?);
        Ok(Self { listener, now, path: path.to_owned() })
    }

    /// Replaces the socket at the path atomically, so that there is always one.
    fn replace_path(mut self) -> io::Result<UnixListener> {
        fs::rename(&self.now, &self.path)?;
        self.listener.take().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for PendingSocket {
    fn drop(&mut self) {
        if self.listener.is_some() {
            let _ = fs::remove_file(&self.now);
        }
    }
}

/// File of our unix socket. Another instance may replace it with its own.
#[derive(Clone, Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    ours: Arc<OnceLock<(u64, u64)>>,
}

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        Self { path, ours: Arc::default() }
    }

    fn record_identity(&self) {
        if let Some(identity) = identity(&self.path) {
            let _ = self.ours.set(identity);
        }
    }

    /// Removes the file if it is still ours.
    pub fn remove(self) {
        if self.ours.get().is_some_and(|ours| identity(&self.path) == Some(*ours)) {
            let _ = fs::remove_file(self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_on_this_machine() {
        let tcp = |address: &str, tls| Port::bind("--admin", address.parse().unwrap(), tls, false);
        assert!(tcp("127.0.0.1:0", false).is_ok());
        let error = tcp("0.0.0.0:0", false).unwrap_err().to_string();
        assert!(error.contains("0.0.0.0:0 (--admin)") && error.contains("--tls-cert"), "{error}");
        assert!(tcp("0.0.0.0:0", true).is_ok());
    }

    #[test]
    fn port_is_shared_only_with_sharing_sockets() {
        let any = "127.0.0.1:0".parse().unwrap();
        let first = Port::bind("--listen", any, false, true).unwrap();
        assert!(Port::bind("--listen", first.address().unwrap(), false, true).is_ok());
        let alone = Port::bind("--listen", any, false, false).unwrap();
        let error = Port::bind("--listen", alone.address().unwrap(), false, true).unwrap_err().to_string();
        assert!(error.contains("does not share it"), "{error}");
    }

    #[test]
    fn a_deserted_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate.sock");
        let first = UnixPort::bind(&path, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, UDS_MODE);
        assert!(matches!(UnixPort::bind(&path, false), Err(BindError::InUse(_))));
        drop(first);
        assert!(UnixPort::bind(&path, false).is_ok(), "nobody listens there any more");

        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        for shared in [false, true] {
            assert!(matches!(UnixPort::bind(&file, shared), Err(BindError::NotASocket(_))));
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }

    #[test]
    fn replaced_unix_socket_outlives_the_first_instance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate.sock");
        let first = open(&path).unwrap();
        let file = SocketFile::new(path.clone());
        file.record_identity();
        let UnixPort::Shared(beside) = UnixPort::bind(&path, true).unwrap() else { panic!("it is shared") };
        let _early = UnixStream::connect(&path).unwrap();
        let second = beside.replace_path().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, UDS_MODE);
        let _late = UnixStream::connect(&path).unwrap();
        assert!(first.accept().is_ok() && second.accept().is_ok());
        assert!(first.accept().is_err() && second.accept().is_err(), "one each");
        file.remove();
        assert!(UnixStream::connect(&path).is_ok());
        drop(UnixPort::bind(&path, true).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "what took no place is gone");
    }
}
