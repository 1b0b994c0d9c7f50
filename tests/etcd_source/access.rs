//! Rights to read, and trust in servers.

use std::{fs, path::Path, time::Duration};

use gatepost::source::{EtcdLocation, ReadError};
use gatepost_etcd_client::{EtcdAccess, EtcdClient, EtcdError, Login, TlsFiles};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    cases::Case,
    etcd::Cluster,
    setting::{PREFIX, Reader, configuration, of, place, runtime, write},
    tls::{Authority, Pair},
    users,
};

pub(crate) const CASES: &[Case] = &[
    ("etcd_is_asked_over_tls_with_a_client_certificate_that_may_change", tls_with_client_certificates),
    ("an_expired_server_certificate_is_named", an_expired_server_certificate_is_named),
    ("a_user_reads_the_prefix_and_no_more", a_user_reads_the_prefix_and_no_more),
    ("a_certificate_s_name_is_a_user", a_certificate_s_name_is_a_user),
    ("a_name_that_does_not_resolve_is_named_and_passed_over", a_name_that_does_not_resolve),
];

/// A node over TLS, and the folder that our own files are in.
struct Secure {
    cluster: Cluster,
    folder: TempDir,
}

impl Secure {
    fn start(program: &Path, authority: &Authority, server: &Pair, clients: Option<&Authority>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let more = Self::files(&folder, authority, server, clients);
        Self { cluster: Cluster::over_tls(program, &more), folder }
    }

    /// The options by which a node serves TLS.
    fn files(folder: &TempDir, authority: &Authority, server: &Pair, clients: Option<&Authority>) -> Vec<String> {
        let file = |name: &str, text: &str| write(folder.path(), name, text).display().to_string();
        let mut more = vec!["--cert-file".to_owned(), file("server.crt", &server.chain)];
        more.extend(["--key-file".to_owned(), file("server.key", &server.key)]);
        if let Some(clients) = clients {
            let ca = file("clients.crt", &clients.pem());
            more.extend(["--client-cert-auth".to_owned(), "--trusted-ca-file".to_owned(), ca]);
        }
        file("ca.crt", &authority.pem());
        more
    }

    fn put_pair(&self, pair: &Pair) {
        write(self.folder.path(), "client.crt", &pair.chain);
        write(self.folder.path(), "client.key", &pair.key);
    }

    /// With our certificate, or without.
    fn place(&self, shown: bool) -> EtcdLocation {
        let file = |name: &str| self.folder.path().join(name);
        let pair = shown.then(|| (file("client.crt"), file("client.key")));
        let tls = TlsFiles { ca: Some(file("ca.crt")), pair };
        of(EtcdAccess { endpoints: self.cluster.urls(), tls, ..EtcdAccess::default() })
    }
}

fn tls_with_client_certificates(program: &Path) {
    let (authority, stranger) = (Authority::new("etcd"), Authority::new("stranger"));
    let etcd = Secure::start(program, &authority, &authority.server(), Some(&authority));
    let ours = authority.pair("gatepost", &[]);
    etcd.put_pair(&ours);
    let mut reader = Reader::open(etcd.place(true));
    reader.good();

    let message = Reader::open(etcd.place(false)).fails_with("received fatal alert").to_string();
    println!("  without a certificate: {message}");

    // A torn rotation, and a key that is none: what was good stays.
    write(etcd.folder.path(), "client.key", &stranger.pair("gatepost", &[]).key);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1100));
        reader.read().expect("the last good pair stays");
    }
    // A sound pair is followed, whether etcd takes it or not.
    etcd.put_pair(&stranger.pair("gatepost", &[]));
    reader.fails_with("received fatal alert");
    etcd.put_pair(&ours);
    reader.good();
    // And so is the authority that we believe.
    write(etcd.folder.path(), "ca.crt", &stranger.pem());
    let message = reader.fails_with("UnknownIssuer").to_string();
    assert!(message.contains("TLS"), "{message}");

    write(etcd.folder.path(), "client.key", "none");
    let error = runtime().block_on(EtcdClient::open(&etcd.place(true).access)).unwrap_err();
    assert!(matches!(error, EtcdError::Tls(_)), "{error}");
}

fn an_expired_server_certificate_is_named(program: &Path) {
    let authority = Authority::new("etcd");
    let etcd = Secure::start(program, &authority, &authority.ending(2001), None);
    let message = Reader::open(etcd.place(false)).fails_with("expired").to_string();
    println!("  {message}");
    assert!(message.contains(&etcd.cluster.url(0)) && !message.contains("verification time"), "{message}");
}

fn a_user_reads_the_prefix_and_no_more(program: &Path) {
    let mut cluster = Cluster::start(program, 1);
    cluster.put(&format!("{PREFIX}a"), &configuration("one.example.com"));
    users::ask_who(&cluster, users::by_password());
    let folder = tempfile::tempdir().unwrap();
    let right = write(folder.path(), "right", "hunter2\n");
    let wrong = write(folder.path(), "wrong", "hunter22\n");
    let access = |user: &str, password_file: &Path| EtcdAccess {
        endpoints: cluster.urls(),
        login: Some(Login { user: user.to_owned(), password_file: password_file.to_owned() }),
        ..EtcdAccess::default()
    };
    let ours = access("gatepost", &right);
    let mut reader = Reader::open(of(ours.clone()));
    assert_eq!(reader.good().files.len(), 1);

    runtime().block_on(async {
        let client = EtcdClient::open(&ours).await.unwrap();
        client.get_prefix(PREFIX).await.unwrap();
        // The calls by which a replica reports.
        let lease = client.grant(Duration::from_secs(15)).await.unwrap();
        client.put(format!("{}one", users::REPLICAS), "report", Some(lease)).await.unwrap();
        client.keep_alive(lease).await.unwrap();
        assert_eq!(client.get_prefix(users::REPLICAS).await.unwrap().pairs.len(), 1);
        client.revoke(lease).await.unwrap();
        for denied in [
            client.get_prefix("/gatepost/").await.map(drop),
            client.summary("/").await.map(drop),
            client.put(format!("{PREFIX}b"), "x", None).await.map(drop),
            client.delete(format!("{PREFIX}a")).await.map(drop),
        ] {
            assert!(matches!(denied, Err(EtcdError::Denied { .. })), "{denied:?}");
        }
    });
    let message = Reader::open(of(access("gatepost", &wrong))).fails_with("password").to_string();
    assert!(message.contains("does not take the password of the user \"gatepost\""), "{message}");
    Reader::open(of(access("nobody", &right))).fails_with("denies the user \"nobody\" this");
    Reader::open(place(cluster.urls())).fails_with("wants a user");
    fs::write(&right, "\n").unwrap();
    assert!(runtime().block_on(EtcdClient::open(&ours)).unwrap_err().to_string().contains("no password in it"));
    // Another password ends all tokens of the user.
    let question = json!({ "name": "root", "password": "hunter2-root" });
    let root = cluster.post("/v3/auth/authenticate", &question).unwrap();
    let question = json!({ "name": "gatepost", "password": "hunter2-changed" });
    fs::write(&right, "hunter2").unwrap();
    cluster.post_as(root["token"].as_str(), "/v3/auth/user/changepw", &question).unwrap();
    reader.fails_with("does not take the password");
    fs::write(&right, "hunter2-changed").unwrap();
    assert_eq!(reader.good().files.len(), 1);
    // And so may a restart.
    cluster.kill(0);
    reader.fails_with("cannot reach");
    cluster.start_node(0);
    assert_eq!(reader.good().files.len(), 1);
}

fn a_certificate_s_name_is_a_user(program: &Path) {
    let mut cluster = Cluster::start(program, 1);
    cluster.put(&format!("{PREFIX}a"), &configuration("one.example.com"));
    users::ask_who(&cluster, json!({ "name": "gatepost", "options": { "no_password": true } }));
    let (authority, folder) = (Authority::new("etcd"), tempfile::tempdir().unwrap());
    cluster.go_over_to_tls(&Secure::files(&folder, &authority, &authority.server(), Some(&authority)));
    let etcd = Secure { cluster, folder };

    etcd.put_pair(&authority.pair("gatepost", &[]));
    let mut reader = Reader::open(etcd.place(true));
    assert_eq!(reader.good().files.len(), 1);
    etcd.put_pair(&authority.pair("nobody", &[]));
    Reader::open(etcd.place(true)).fails_with("denies the user of our certificate");
    // Where a password is given, too, its user counts.
    etcd.put_pair(&authority.pair("gatepost", &[]));
    let mut place = etcd.place(true);
    let password_file = write(etcd.folder.path(), "password", "hunter2");
    place.access.login = Some(Login { user: "nobody".to_owned(), password_file });
    Reader::open(place).fails_with("denies the user \"nobody\" this");
}

fn a_name_that_does_not_resolve(program: &Path) {
    let cluster = Cluster::start(program, 1);
    // Too long for a label: no resolver has to be asked.
    let nowhere = format!("http://{}.example:2379", "x".repeat(64));
    let reading =
        |endpoints| Reader::open(of(EtcdAccess { endpoints, plaintext: true, ..EtcdAccess::default() })).read();
    let both = [vec![nowhere.clone()], cluster.urls()].concat();
    reading(both).expect("the next endpoint answers");
    let error = reading(vec![nowhere]).unwrap_err();
    assert!(matches!(&error, ReadError::Etcd(EtcdError::Unreachable { .. })), "{error}");
    assert!(error.to_string().contains("cannot be resolved"), "{error}");
}
