//! Ends that know each other by keys, and what each says where they do not.

mod ends;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use ends::{Far, plan, run};
use farlink_host::process;
use farlink_mover::memory::Plan;
use farlink_mover::secure::{Admission, Credentials, Identity};
use farlink_mover::server::{Event, Limits};
use farlink_wire::key::PublicKey;
use farlink_wire::message::Way;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::{Outcome, Record};

/// Keys of both ends, in files of a directory that goes with this.
struct Keys {
    directory: PathBuf,
    client: PublicKey,
    server: Identity,
    admission: Arc<Admission>,
}

impl Keys {
    fn new() -> Self {
        let name = format!("farlink-keys-{:032x}", u128::from_be_bytes(process::random().unwrap()));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let client = Identity::create(&directory.join("identity")).unwrap().public();
        let listed = directory.join("authorized_keys");
        fs::write(&listed, format!("# clients\nread=/data {client} a test\n")).unwrap();
        let admission = Arc::new(Admission::of_file(&listed).unwrap());
        Self { directory, client, server: Identity::generate().unwrap(), admission }
    }

    fn far(&self, limits: Limits) -> Far {
        Far::with_keys("127.0.0.1", limits, Some((self.server.clone(), Arc::clone(&self.admission))))
    }

    /// Writes down that `key` is that of the far end at `address`.
    fn know(&self, address: SocketAddr, key: PublicKey) {
        fs::write(self.directory.join("known_hosts"), format!("{address} {key}\n")).unwrap();
    }

    fn plan(&self, address: SocketAddr) -> Plan {
        let file = |name| self.directory.join(name);
        let credentials = Credentials { identity: file("identity"), known_hosts: file("known_hosts") };
        Plan { credentials: Some(credentials), ..plan(address) }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn error_of(plan: &Plan) -> String {
    let Record { outcome, error, bytes, .. } = run(plan);
    assert_eq!((outcome, bytes), (Outcome::Failed, 0));
    error.unwrap()
}

#[test]
fn ends_that_know_each_other_move_memory_both_ways() {
    let keys = Keys::new();
    let far = keys.far(Limits::default());
    keys.know(far.address(), keys.server.public());
    for way in [Way::Forward, Way::Reverse] {
        let record = run(&Plan { way, ..keys.plan(far.address()) });
        assert_eq!((record.outcome, record.bytes), (Outcome::Ok, 5_000_000), "{:?}", record.error);
        // Its data are synthetic, and go in clear.
        assert_eq!(record.protection.as_deref(), Some("clear"));
    }
}

#[test]
fn a_far_end_that_was_never_written_down_is_told_with_the_line_to_write() {
    let keys = Keys::new();
    let far = keys.far(Limits::default());
    let error = error_of(&keys.plan(far.address()));
    let (address, shown) = (far.address(), keys.server.public());
    assert_eq!(
        error,
        format!(
            "127.0.0.1 is not known: if farlink there says that its key is {shown}, add this line to {}: {address} {shown}",
            keys.path("known_hosts")
        )
    );
    // Nothing was asked of it, and nobody was let in.
    assert!(!far.end().iter().any(|event| matches!(event, Event::Started { .. })));
}

#[test]
fn a_far_end_with_another_key_than_before_is_not_trusted() {
    let keys = Keys::new();
    let far = keys.far(Limits::default());
    keys.know(far.address(), keys.client);
    let error = error_of(&keys.plan(far.address()));
    let said = format!(
        "127.0.0.1 shows the key {}, but {}, line 1, has {}: somebody may be in between",
        keys.server.public(),
        keys.path("known_hosts"),
        keys.client
    );
    assert!(error.starts_with(&said), "{error}");
}

#[test]
fn a_key_is_let_in_once_the_list_has_it_and_a_bad_list_changes_nothing() {
    let keys = Keys::new();
    let far = keys.far(Limits::default());
    keys.know(far.address(), keys.server.public());
    let plan = keys.plan(far.address());
    let list = |text: String| fs::write(keys.path("authorized_keys"), text).unwrap();

    list("# nobody\n".to_owned());
    assert_eq!(keys.admission.reload().unwrap(), 0);
    assert_eq!(
        error_of(&plan),
        format!(
            "{} does not let this key in: add a line \"read=/DIRECTORY write=/DIRECTORY {}\" to the authorized_keys there",
            far.address(),
            keys.client
        )
    );
    list(format!("write=/in {}\n", keys.client));
    assert_eq!(keys.admission.reload().unwrap(), 1);
    assert_eq!(run(&plan).outcome, Outcome::Ok);

    list(format!("{0}\nread=data {0}\n", keys.client));
    let error = keys.admission.reload().unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}, line 2: \"data\" is no directory", keys.path("authorized_keys"))),
        "{error}"
    );
    list(format!("{0}\n{0}\n", keys.client));
    let error = keys.admission.reload().unwrap_err().to_string();
    assert!(error.ends_with("line 2: the key of line 1 again: keep one of the two"), "{error}");
    fs::set_permissions(keys.path("authorized_keys"), fs::Permissions::from_mode(0o664)).unwrap();
    let error = keys.admission.reload().unwrap_err().to_string();
    assert!(error.contains("(mode 0664): run `chmod go-w "), "{error}");
    fs::remove_file(keys.path("authorized_keys")).unwrap();
    assert!(keys.admission.reload().is_err());
    assert_eq!(keys.admission.grant(keys.client).unwrap().grant.write, [PathBuf::from("/in")]);
    assert_eq!(run(&plan).outcome, Outcome::Ok);
}

#[test]
fn a_client_without_a_key_of_its_own_is_told_how_to_get_one() {
    let keys = Keys::new();
    let far = keys.far(Limits::default());
    keys.know(far.address(), keys.server.public());
    let plan = keys.plan(far.address());
    fs::set_permissions(keys.path("identity"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = error_of(&plan);
    assert!(error.ends_with(&format!("(mode 0644): run `chmod 600 {}`", keys.path("identity"))), "{error}");
    fs::remove_file(keys.path("identity")).unwrap();
    let error = error_of(&plan);
    assert!(error.contains("make one with `farlink keygen"), "{error}");
}

#[test]
fn a_server_without_keys_lets_nobody_in_by_one() {
    let keys = Keys::new();
    let far = Far::start("127.0.0.1");
    keys.know(far.address(), keys.server.public());
    let error = error_of(&keys.plan(far.address()));
    assert!(error.contains("closed the connection before it had shown a key"), "{error}");
    assert_eq!(run(&plan(far.address())).outcome, Outcome::Ok);
}

#[test]
fn who_is_on_the_same_machine_needs_no_key() {
    let keys = Keys::new();
    let far = keys.far(Limits::default());
    assert_eq!(run(&plan(far.address())).outcome, Outcome::Ok);
}

#[test]
fn a_crowd_that_shows_no_key_does_not_keep_others_out() {
    let keys = Keys::new();
    let far = keys.far(Limits { strangers: 8, patience: Nanos(2_000_000_000), ..Limits::default() });
    keys.know(far.address(), keys.server.public());
    let crowd: Vec<_> = (0..100)
        .map(|number| {
            let mut stream = TcpStream::connect(far.address()).unwrap();
            // The start of a handshake that never goes on, and bytes that are none.
            let said: &[u8] =
                if number % 2 == 0 { b"\x16\x03\x01\x02\x00\x01" } else { b"\x16\x03\x03\x00\x02ab" };
            let _ = stream.write_all(said);
            stream
        })
        .collect();
    assert_eq!(run(&keys.plan(far.address())).outcome, Outcome::Ok);
    drop(crowd);
}
