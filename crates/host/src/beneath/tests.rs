use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use farlink_wire::path::RelativePath;

use super::*;

/// A directory that is gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("beneath-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> Directory {
        Directory::open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn is_refused(error: &io::Error) -> bool {
    is_link_in_the_way(error) || leads_out(error)
}

#[test]
fn no_name_leads_out_whoever_says_it() {
    let scratch = Scratch::new("out");
    let inside = scratch.0.join("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(scratch.0.join("secret"), "x").unwrap();
    symlink("..", inside.join("up")).unwrap();
    symlink(&scratch.0, inside.join("absolute")).unwrap();
    symlink("../secret", inside.join("file")).unwrap();
    let directory = Directory::open(&inside).unwrap();
    for links in [Links::Follow, Links::Refuse] {
        for out in ["..", "up", "absolute", "/", "up/inside"] {
            let error = directory.open_dir(out.as_bytes(), links).unwrap_err();
            let refused = if links == Links::Follow { leads_out(&error) } else { is_refused(&error) };
            assert!(refused, "{out}: {error}");
        }
    }
    for out in ["../secret", "file", "up/secret", "absolute/secret"] {
        assert!(is_refused(&directory.open_read(out.as_bytes()).unwrap_err()), "{out}");
        assert!(is_refused(&directory.open_write(out.as_bytes()).unwrap_err()), "{out}");
        assert!(directory.create_new(out.as_bytes()).is_err(), "{out}");
    }
    for name in ["", ".", "..", "a/b", "up/x", "a\0b"] {
        let name = name.as_bytes();
        assert!(directory.make_dir(name, 0o700).is_err());
        assert!(directory.symlink(b"x", name).is_err());
        assert!(directory.rename(b"file", &directory, name).is_err());
        assert!(directory.unlink(name).is_err() && directory.status(name).is_err());
    }
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 2);
}

#[test]
fn a_users_own_links_are_followed_beneath_and_a_peers_are_not() {
    let scratch = Scratch::new("links");
    fs::create_dir(scratch.0.join("real")).unwrap();
    symlink("real", scratch.0.join("link")).unwrap();
    symlink(scratch.0.join("real"), scratch.0.join("absolute")).unwrap();
    let directory = scratch.open();
    assert!(directory.open_dir(b"link", Links::Follow).is_ok());
    assert!(is_link_in_the_way(&directory.open_dir(b"link", Links::Refuse).unwrap_err()));
    // Beneath `/` an absolute link leads nowhere else.
    let whole = Directory::open(Path::new("/")).unwrap();
    let absolute = scratch.0.join("absolute");
    let absolute = &absolute.as_os_str().as_bytes()[1..];
    let real = whole.open_dir(absolute, Links::Follow).unwrap().own_status().unwrap();
    assert_eq!(real.inode, fs::metadata(scratch.0.join("real")).unwrap().ino());
}

#[test]
fn only_regular_files_are_opened_and_a_fifo_blocks_nobody() {
    let scratch = Scratch::new("fifo");
    nix::unistd::mkfifo(&scratch.0.join("fifo"), Mode::S_IRWXU).unwrap();
    fs::create_dir(scratch.0.join("directory")).unwrap();
    let directory = scratch.open();
    let error = directory.open_read(b"fifo").unwrap_err();
    assert_eq!(error.to_string(), "it is a named pipe");
    assert_eq!(directory.open_write(b"fifo").unwrap_err().to_string(), "it is a named pipe");
    assert!(directory.open_read(b"directory").is_err());
    let _socket = std::os::unix::net::UnixListener::bind(scratch.0.join("socket")).unwrap();
    assert_eq!(directory.open_write(b"socket").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(directory.status(b"fifo").unwrap().node, Node::Fifo);
}

#[test]
fn what_is_made_has_its_mode_its_times_and_its_names() {
    let scratch = Scratch::new("made");
    let directory = scratch.open();
    for name in [&b"b\n"[..], b"a\xff", &[b'x'; 255]] {
        directory.create_new(name).unwrap();
        assert_eq!(directory.create_new(name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
    let names = directory.list().unwrap();
    assert_eq!(names.iter().collect::<Vec<_>>(), [&b"a\xff"[..], b"b\n", &[b'x'; 255]]);
    assert_eq!((names.len(), names.at(1), names.at(3)), (3, Some(&b"b\n"[..]), None));
    directory.symlink(b"nowhere\xfe", b"link").unwrap();
    directory.set_mtime_of(b"link", -5, 123_456_789).unwrap();
    let status = directory.status(b"link").unwrap();
    assert_eq!((status.node, status.mtime_s, status.mtime_ns), (Node::Symlink, -5, 123_456_789));
    assert_eq!(directory.read_link(b"link").unwrap(), b"nowhere\xfe");
    directory.make_dir(b"sub", 0o700).unwrap();
    let sub = directory.open_dir(b"sub", Links::Refuse).unwrap();
    directory.rename(b"b\n", &sub, b"c").unwrap();
    let file = sub.open_write(b"c").unwrap();
    set_mtime(&file, 7, 1).unwrap();
    assert_eq!((sub.status(b"c").unwrap().mtime_s, status_of(&file).unwrap().mtime_ns), (7, 1));
    sub.unlink(b"c").unwrap();
    assert!(sub.list().unwrap().is_empty());
    sub.set_mode(0o2751).unwrap();
    sub.set_mtime(1_000_000_000, 999_999_999).unwrap();
    sub.sync().unwrap();
    let about = fs::metadata(scratch.0.join("sub")).unwrap();
    assert_eq!(about.permissions().mode() & 0o7777, 0o2751);
    assert_eq!((about.mtime(), about.mtime_nsec()), (1_000_000_000, 999_999_999));
}

#[test]
fn a_directory_knows_its_path_though_it_is_moved() {
    let scratch = Scratch::new("path");
    fs::create_dir(scratch.0.join("sub")).unwrap();
    let sub = scratch.open().open_dir(b"sub", Links::Refuse).unwrap();
    fs::rename(scratch.0.join("sub"), scratch.0.join("moved")).unwrap();
    assert_eq!(sub.path().unwrap(), scratch.0.canonicalize().unwrap().join("moved"));
}

#[test]
fn a_tree_opens_a_directory_once_and_holds_few() {
    let scratch = Scratch::new("tree");
    for number in 0..200 {
        fs::create_dir_all(scratch.0.join(format!("{number}/deep"))).unwrap();
    }
    let tree = Tree::new(scratch.open());
    let (first, name) =
        tree.parent(&path("0/deep/file")).unwrap().map(|(at, name)| (at, name.to_vec())).unwrap();
    assert_eq!(name, b"file");
    assert!(Arc::ptr_eq(&first, &tree.directory(&path("0/deep")).unwrap()));
    for number in 0..200 {
        tree.directory(&path(&format!("{number}/deep"))).unwrap();
    }
    assert!(!Arc::ptr_eq(&first, &tree.directory(&path("0/deep")).unwrap()), "it was closed meanwhile");
    assert!(tree.parent(&RelativePath::root()).unwrap().is_none());
    assert!(Arc::ptr_eq(tree.top(), &tree.parent(&path("x")).unwrap().unwrap().0));
    fs::rename(scratch.0.join("0"), scratch.0.join("moved")).unwrap();
    symlink("/tmp", scratch.0.join("0")).unwrap();
    tree.forget();
    assert!(is_link_in_the_way(&tree.directory(&path("0")).unwrap_err()));
}

#[test]
fn a_mode_is_given_to_what_nobody_may_read_and_through_no_link() {
    let scratch = Scratch::new("mode-of");
    fs::write(scratch.0.join("file"), "x").unwrap();
    fs::create_dir(scratch.0.join("directory")).unwrap();
    symlink("file", scratch.0.join("link")).unwrap();
    let directory = scratch.open();
    let mode = |name: &str| fs::metadata(scratch.0.join(name)).unwrap().permissions().mode() & 0o7777;
    for name in ["file", "directory"] {
        for wanted in [0, 0o4750] {
            directory.set_mode_of(name.as_bytes(), wanted).unwrap();
            assert_eq!(mode(name), u32::from(wanted));
        }
    }
    assert!(is_link_in_the_way(&directory.set_mode_of(b"link", 0o600).unwrap_err()));
    assert_eq!(mode("file"), 0o4750);
    for out in ["..", ".", "", "directory/x"] {
        assert!(directory.set_mode_of(out.as_bytes(), 0o600).is_err(), "{out}");
    }
}
