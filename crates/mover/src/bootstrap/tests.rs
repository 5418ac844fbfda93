//! Far ends through a real sshd on this machine, as the user that runs the tests.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use farlink_host::process;
use farlink_wire::message::{Goal, Host, Message, Request, Stamp, Token, Way};

use super::*;
use crate::channel::Wait;
use crate::control::Control;
use crate::facts;
use crate::role::Role;
use crate::tuning::Tuning;

const PATIENCE: Nanos = Nanos(30_000_000_000);

/// What `farlink far-end` is here: this very program, which the script of [`Sshd`] starts with what it was given.
#[test]
#[ignore = "it is the far end of the others, which start it"]
fn the_far_end_of_the_others() {
    // The test's own words go to standard output: the script keeps that apart.
    let output = OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    let asked = std::env::var("FAR_END").unwrap();
    match asked.strip_prefix("far-end --channel ") {
        Some(address) => join(io::stdin(), output, address.parse().unwrap()).unwrap(),
        None => {
            assert_eq!(asked, "far-end");
            let _ = serve(io::stdin(), output, &|_| {});
        }
    }
}

/// An sshd that lets this user in, until it is dropped.
struct Sshd {
    directory: PathBuf,
    server: Child,
}

impl Sshd {
    /// One on whose PATH `farlink` is, where it `has_farlink`.
    fn start(has_farlink: bool) -> Self {
        let name = format!("farlink-sshd-{:032x}", u128::from_be_bytes(process::random().unwrap()));
        let directory = std::env::temp_dir().join(name);
        let at = |name: &str| directory.join(name);
        fs::create_dir_all(at("bin")).unwrap();
        for key in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(key))
                .status();
            assert!(made.expect("OpenSSH is missing: run `make setup`").success());
        }
        fs::copy(at("user_key.pub"), at("authorized_keys")).unwrap();
        let own = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nprintf 'Welcome\\nto '\nFAR_END=\"$*\" '{}' bootstrap::tests::the_far_end_of_the_others \
             --exact --ignored --nocapture 3>&1 >/dev/null | cat\n",
            own.display()
        )
        // Bytes of a channel have nothing before them.
        .replace("printf", "[ \"$2\" ] || printf");
        let script_at = if has_farlink { at("bin/farlink") } else { at("shipped") };
        fs::write(&script_at, script).unwrap();
        fs::set_permissions(&script_at, fs::Permissions::from_mode(0o755)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = directory.display();
        fs::write(
            at("sshd_config"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host_key\nAuthorizedKeysFile {dir}/authorized_keys\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nMaxStartups 100\n\
                 SetEnv PATH={dir}/bin:/usr/bin:/bin HOME={dir}\n"
            ),
        )
        .unwrap();
        fs::write(
            at("ssh_config"),
            format!(
                "Host far\nHostName 127.0.0.1\nHost nobody\nHostName 127.0.0.1\nPort 1\nHost inner\nHostName 192.0.2.1\n\
                 ProxyCommand ssh -F {dir}/ssh_config -W 127.0.0.1:{port} far\nHost *\nPort {port}\n\
                 IdentityFile {dir}/user_key\nIdentitiesOnly yes\nUserKnownHostsFile {dir}/known_hosts\n\
                 StrictHostKeyChecking accept-new\nBatchMode yes\nLogLevel ERROR\n"
            ),
        )
        .unwrap();
        // Root's sshd wants an empty directory.
        let _ = fs::create_dir_all("/run/sshd");
        let mut server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(at("sshd_config"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("OpenSSH's server is missing: run `make setup`");
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("Server listening") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "sshd ended");
        }
        // It must not wait for somebody to read what it says.
        std::thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        Self { directory, server }
    }

    fn remote(&self, host: &str) -> Remote {
        let command = format!("ssh -F '{}/ssh_config'", self.directory.display());
        Remote { ssh: Ssh::new(Some(&command), host).unwrap(), ports: None, bind: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn started(remote: &Remote, notices: &mut Vec<Notice>) -> FarEnd {
    let stop = Wake::new().unwrap();
    FarEnd::start(remote, Nanos::MAX, &stop, &mut |notice| notices.push(notice)).unwrap().unwrap()
}

/// Moves memory to `far` over two streams, and returns what there was to say of the way.
fn move_memory(far: &FarEnd) -> Vec<Notice> {
    let request = Request {
        token: Token(process::random().unwrap()),
        way: Way::Forward,
        goal: Goal::size(Bytes(2_000_000)).unwrap(),
        streams: 2.try_into().unwrap(),
        congestion: None,
        declared: None,
        limit: None,
        buffer: None,
        block: Bytes(1 << 20).try_into().unwrap(),
        zero_copy: None,
        interval: Nanos(100_000_000).try_into().unwrap(),
        patience: PATIENCE.try_into().unwrap(),
        host: Host { ..facts::host() },
    };
    let mut dial = Dial {
        route: Route::Tcp(Vec::new()),
        trust: None,
        protect_data: false,
        token: request.token,
        role: Role::Sender,
        tuning: Tuning::from(&request),
        path: None,
        bind: None,
    };
    let (stop, until) = (Wake::new().unwrap(), monotonic().after(PATIENCE));
    let mut notices = Vec::new();
    let first = |_| vec![Message::Request(request.clone())];
    let dialled =
        far.open(&mut dial, &first, PATIENCE, &stop, &mut |notice| notices.push(notice)).unwrap().unwrap();
    let Dialled { mut control, data, early, .. } = dialled;
    let mut early = early.into_iter().map(|(message, _)| message);
    let mut next = |control: &mut Control| {
        early.next().unwrap_or_else(|| control.next(until, &stop).unwrap().expect("nobody stops it"))
    };
    let Message::Accept(accept) = next(&mut control) else { panic!("no consent") };
    for (_, mut channel) in data {
        channel.set_wait(Some(Wait { patience: PATIENCE, stop: stop.clone(), while_full: false }));
        channel.write_all(&Stamp(accept.sent).encode()).unwrap();
        channel.write_all(&vec![7; 1_000_000]).unwrap();
        channel.flush().unwrap();
        channel.finish().unwrap();
    }
    loop {
        match next(&mut control) {
            Message::Received(received) => {
                assert_eq!((received.bytes, received.complete), (2_000_000, true));
                return notices;
            }
            Message::Arrived(_) | Message::Alive => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_far_end_serves_over_tcp_and_is_gone_afterwards() {
    let sshd = Sshd::start(true);
    let mut remote = sshd.remote("far");
    remote.ports = Some("42310-42390".parse().unwrap());
    let mut notices = Vec::new();
    let far = started(&remote, &mut notices);
    assert!(notices.is_empty(), "{notices:?}");
    assert_eq!(far.name.as_str(), process::host_name());
    assert!((42_310..42_390).contains(&far.port));
    assert_eq!(move_memory(&far), []);
    let address = SocketAddr::from(([127, 0, 0, 1], far.port));
    assert!(TcpStream::connect(address).is_ok());
    drop(far);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_address_to_listen_on_is_the_one_to_connect_to() {
    let sshd = Sshd::start(true);
    let mut remote = sshd.remote("far");
    // ssh's host is 127.0.0.1: nobody listens there.
    remote.bind = Some([127, 0, 0, 2].into());
    let far = started(&remote, &mut Vec::new());
    assert!(TcpStream::connect(("127.0.0.1", far.port)).is_err());
    assert_eq!(move_memory(&far), []);
}

#[test]
fn where_another_far_end_has_the_port_another_way_is_taken() {
    let sshd = Sshd::start(true);
    let on = |last: u8, ports: &str| {
        let mut remote = sshd.remote("far");
        (remote.bind, remote.ports) = (Some([127, 0, 0, last].into()), Some(ports.parse().unwrap()));
        started(&remote, &mut Vec::new())
    };
    let other = on(1, "42410-42490");
    let mut far = on(2, &format!("{}-{}", other.port, other.port + 1));
    // As one of several hosts that have the name.
    far.bind = None;
    let notices = move_memory(&far);
    let [Notice::Reversed { reason, .. } | Notice::Blocked { reason, .. }] = notices.as_slice() else {
        panic!("{notices:?}")
    };
    assert_eq!(reason, "another farlink listens there");
}

#[test]
fn where_the_port_is_not_reached_it_connects_to_this_host() {
    let sshd = Sshd::start(true);
    // Its address leads nowhere, and ssh goes through another host; but this one is reached from there.
    let far = started(&sshd.remote("inner"), &mut Vec::new());
    let notices = move_memory(&far);
    let [Notice::Reversed { host, port, reason, here }] = notices.as_slice() else { panic!("{notices:?}") };
    assert_eq!((host.as_str(), *port), ("inner", far.port));
    assert!(*here > 0 && *here != far.port);
    // Whatever the network says of an address that is nobody's.
    assert!(!reason.is_empty() && !reason.contains("farlink serve"), "{reason}");
}

#[test]
fn a_host_without_farlink_is_sent_this_one_once() {
    let sshd = Sshd::start(false);
    // A shell that says something, and ends no line.
    fs::write(sshd.path(".bashrc"), "printf 'Hello '\n: >~/said\n").unwrap();
    let remote = sshd.remote("far");
    let shipment = Shipment::of(&sshd.path("shipped")).unwrap();
    let start = || {
        let mut notices = Vec::new();
        let stop = Wake::new().unwrap();
        let far =
            FarEnd::start_or_send(&remote, &shipment, Nanos::MAX, &stop, &mut |notice| notices.push(notice));
        (far.unwrap().unwrap(), notices)
    };
    let (far, notices) = start();
    assert_eq!(notices, [Notice::Shipping { host: "far".to_owned(), size: shipment.size() }]);
    assert_eq!(move_memory(&far), []);
    let kept: Vec<_> =
        fs::read_dir(sshd.path(".cache/farlink")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!(fs::read(kept).unwrap(), fs::read(sshd.path("shipped")).unwrap());
    let (_far, notices) = start();
    assert_eq!(notices, []);
    assert!(sshd.path("said").exists());
}

fn refused(remote: &Remote) -> String {
    let stop = Wake::new().unwrap();
    crate::chain(&FarEnd::start(remote, Nanos::MAX, &stop, &mut |_| {}).unwrap_err())
}

fn install(sshd: &Sshd, script: &str) {
    let path = sshd.path("bin/farlink");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(Path::new(&path), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_no_far_end_is_one_line() {
    let sshd = Sshd::start(true);
    assert_eq!(refused(&sshd.remote("nobody")), "ssh did not reach nobody");
    let remote = sshd.remote("far");
    install(&sshd, "exit 2");
    assert_eq!(
        refused(&remote),
        "ssh for far ended with exit code 2 before a farlink there answered: the account there must be allowed to run commands, and the same \
         release be installed at both ends"
    );
    install(&sshd, "echo; echo 'This account is currently not available.'; exit 1");
    assert!(refused(&remote).contains("answered, and said \"This account is currently not available.\": "));
    install(&sshd, "echo 'farlink-far-end {\"version\":9}'");
    assert!(
        refused(&remote)
            .starts_with("far: the far side speaks version 9, this is version 7: install the same")
    );
    install(&sshd, "echo 'farlink-far-end {}'");
    assert!(refused(&remote).starts_with("far: a malformed line"));
    install(&sshd, "yes");
    assert!(refused(&remote).ends_with("where one line was to: its login shell prints too much"));
}

#[test]
fn an_ssh_that_says_nothing_is_waited_for_as_long_as_was_said() {
    let remote =
        |command: &str| Remote { ssh: Ssh::new(Some(command), "far").unwrap(), ports: None, bind: None };
    let (patience, stop) = (Nanos(50_000_000), Wake::new().unwrap());
    let shipment = Shipment::of_this_program().unwrap();
    let start = |command: &str| {
        FarEnd::start_or_send(&remote(command), &shipment, patience, &stop, &mut |_| {}).unwrap_err()
    };
    let began = monotonic();
    let silent = start("sh -c 'exec cat'");
    assert!(monotonic().since(began) >= patience);
    assert!(crate::chain(&silent).starts_with("nothing has been heard of ssh to far for 50ms: "), "{silent}");
}

#[test]
fn ports_that_are_taken_are_named() {
    let sshd = Sshd::start(true);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut remote = sshd.remote("far");
    remote.ports = Some(format!("{port}-{}", port + 1).parse().unwrap());
    remote.bind = Some([127, 0, 0, 1].into());
    let refused = refused(&remote);
    assert!(refused.starts_with(&format!("far: none of the ports {port}-{} is free", port + 1)), "{refused}");
}

#[test]
fn a_stop_ends_the_wait_for_an_answer() {
    let sshd = Sshd::start(true);
    install(&sshd, "exec cat");
    let stop = Wake::new().unwrap();
    stop.raise();
    assert!(FarEnd::start(&sshd.remote("far"), Nanos::MAX, &stop, &mut |_| {}).unwrap().is_none());
}

#[test]
fn another_way_is_tried_where_no_address_is_of_the_kind_of_this_end_and_not_from_an_address_of_nobody() {
    use crate::dial::foreign;
    let from = Ipv6Addr::LOCALHOST.into();
    assert!(is_blocked(&DialError::Otherwise { from }));
    let connect = |source| DialError::Connect { at: "b".to_owned(), source };
    let unavailable = || io::Error::from(io::ErrorKind::AddrNotAvailable);
    // As where all ports are taken.
    assert!(is_blocked(&connect(unavailable())));
    assert!(!is_blocked(&connect(foreign(from, unavailable()))));
}
