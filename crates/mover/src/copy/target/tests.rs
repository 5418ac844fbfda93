use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use farlink_wire::entry::{Digest, Kind, Metadata};

use super::super::filter::Filter;
use super::super::pattern::Pattern;
use super::*;
use crate::chain;

/// A directory that is gone when the test ends.
pub(in crate::copy) struct Scratch(pub(in crate::copy) PathBuf);

impl Scratch {
    pub(in crate::copy) fn new(name: &str) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("target-{name}-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(in crate::copy) fn open(
        &self,
        path: &str,
        several: bool,
        options: TargetOptions,
    ) -> Result<Target, TargetError> {
        let target = self.find(path, several, options)?;
        target.begin()?;
        Ok(target)
    }

    /// As [`open`](Self::open), and nothing is made.
    pub(in crate::copy) fn find(
        &self,
        path: &str,
        several: bool,
        options: TargetOptions,
    ) -> Result<Target, TargetError> {
        let containment = Arc::new(Directory::open(&self.0).unwrap());
        Target::find(
            &containment,
            &Destination { path: path.into(), several, above: Vec::new() },
            [7; 16],
            options,
        )
    }

    /// The directory as the destination.
    pub(super) fn target(&self) -> Target {
        self.open("", true, TargetOptions::default()).unwrap()
    }

    pub(in crate::copy) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|each| each.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) const METADATA: Metadata = Metadata { mode: 0o640, mtime_s: 1_234_567_890, mtime_ns: 123_456_789 };

pub(super) fn entry(path: &[u8], kind: Kind) -> Entry {
    Entry { path: RelativePath::new(path).unwrap(), kind, metadata: METADATA }
}

pub(in crate::copy) fn file(path: &str, size: u64) -> Entry {
    entry(path.as_bytes(), Kind::File { size })
}

pub(super) fn directory(path: &str, mode: u16) -> Entry {
    Entry { metadata: Metadata { mode, ..METADATA }, ..entry(path.as_bytes(), Kind::Directory) }
}

fn link(path: &str, target: &str) -> Entry {
    entry(path.as_bytes(), Kind::Symlink { target: target.into() })
}

pub(super) fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn whole(content: &[u8]) -> Digest {
    farlink_flow::digest::whole(content)
}

#[test]
fn a_small_file_has_its_content_its_mode_and_its_time_and_leaves_nothing_else() {
    let scratch = Scratch::new("put");
    let target = scratch.open("", true, TargetOptions { fsync: true, ..TargetOptions::default() }).unwrap();
    for name in [&b"plain"[..], b"new\nline\xff%", &[b'x'; 255]] {
        target.put(&entry(name, Kind::File { size: 3 }), b"abc").unwrap();
        target.put(&entry(name, Kind::File { size: 2 }), b"de").unwrap();
        let path = scratch.0.join(OsStr::from_bytes(name));
        let about = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"de");
        assert_eq!(
            (about.mode() & 0o7777, about.mtime(), about.mtime_nsec()),
            (0o640, 1_234_567_890, 123_456_789)
        );
    }
    assert_eq!(scratch.names().len(), 3);
    let masked = TargetOptions { mode_mask: 0o777, ..TargetOptions::default() };
    let set_id = Entry { metadata: Metadata { mode: 0o6755, ..METADATA }, ..file("set-id", 1) };
    scratch.open("", true, masked).unwrap().put(&set_id, b"x").unwrap();
    assert_eq!(fs::metadata(scratch.0.join("set-id")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn the_destination_is_what_it_is_there_or_what_the_entries_make_of_it() {
    let scratch = Scratch::new("placing");
    fs::create_dir(scratch.0.join("there")).unwrap();
    symlink("there", scratch.0.join("link")).unwrap();
    fs::write(scratch.0.join("old"), "old").unwrap();
    let placed = |destination: &str, several, entry: Entry| {
        let target = scratch.open(destination, several, TargetOptions::default())?;
        match entry.kind {
            Kind::Directory => target.directory(&entry),
            _ => target.put(&entry, b"x"),
        }
    };
    let table = [
        ("there", false, file("a", 1), "there/a"),
        ("/link", false, file("b", 1), "there/b"),
        ("new", false, file("a", 1), "new"),
        ("old", false, file("a", 1), "old"),
        ("./old", false, file("b", 1), "old"),
        ("slash/", false, file("a", 1), "slash/a"),
        ("several", true, file("a", 1), "several/a"),
        ("tree", false, directory("t", 0o755), "tree/t"),
        ("deep", false, file("t/u/v", 1), "deep/t/u/v"),
        ("contents", false, directory("", 0o755), "contents"),
        ("there/..", false, file("up", 1), "up"),
        ("//there//sub//", false, file("a", 1), "there/sub/a"),
    ];
    for (destination, several, entry, at) in table {
        placed(destination, several, entry)
            .unwrap_or_else(|error| panic!("{destination}: {}", chain(&error)));
        let about = fs::symlink_metadata(scratch.0.join(at));
        assert!(about.is_ok_and(|about| about.is_dir() || about.len() == 1), "{destination}");
    }
    let errors = [
        (
            "/no/such/place",
            false,
            file("a", 1),
            "the directory /no/such is not there: make it with `mkdir -p /no/such`",
        ),
        ("no/", true, file("a/b", 1), ""),
        ("old/", false, file("a", 1), "a file is in the way to old/: move it away, or choose another name"),
        ("old", true, file("a", 1), "a file is in the way to old: move it away, or choose another name"),
        (
            "old",
            false,
            directory("t", 0o755),
            "a file is in the way to old: move it away, or choose another name",
        ),
        ("old/x", false, file("a", 1), "a file is in the way to old/: move it away, or choose another name"),
        ("../out", false, file("a", 1), "../out leads out of the directory that may be written"),
    ];
    for (destination, several, entry, said) in errors {
        match placed(destination, several, entry) {
            Ok(()) => assert_eq!(said, "", "{destination}"),
            Err(error) => assert_eq!(chain(&error), said, "{destination}"),
        }
    }
}

#[test]
fn only_what_was_asked_for_is_taken() {
    let scratch = Scratch::new("expected");
    let asked = Asked::new(Some(vec![Pattern::of(b"asked"), Pattern::of(b"like*")]), Filter::default());
    let options = TargetOptions { asked: Some(Arc::new(asked)), ..TargetOptions::default() };
    let target = scratch.open("", true, options).unwrap();
    target.put(&file("asked/for", 1), b"x").unwrap();
    target.put(&file("likely", 1), b"x").unwrap();
    for not in [file(".bashrc", 1), file("aske", 1), file("asked2/x", 1), file("lik", 1), file("a/like", 1)] {
        assert!(matches!(target.put(&not, b"x"), Err(TargetError::Unexpected { .. })));
        assert!(matches!(target.partial(&not, 1 << 20, false), Err(TargetError::Unexpected { .. })));
    }
    assert!(matches!(target.symlink(&link("x", "y")), Err(TargetError::Unexpected { .. })));
    for not in ["", "other"] {
        assert!(matches!(target.directory(&directory(not, 0o755)), Err(TargetError::Unexpected { .. })));
    }
    assert_eq!(scratch.names(), ["asked", "likely"]);
}

#[test]
fn a_directory_that_becomes_a_link_leads_nothing_outside() {
    let scratch = Scratch::new("swap");
    let (inside, outside) = (scratch.0.join("in"), scratch.0.join("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    let target = scratch.open("in", true, TargetOptions::default()).unwrap();
    target.directory(&directory("d", 0o755)).unwrap();
    target.directory(&directory("d/e", 0o755)).unwrap();
    target.put(&file("d/e/before", 1), b"x").unwrap();
    fs::rename(inside.join("d"), inside.join("moved")).unwrap();
    symlink("../out", inside.join("d")).unwrap();
    // What is still open is the directory that it was; what is not is refused.
    for late in ["d/e/after", "d/after", "d/new/after"] {
        let _ = target.put(&file(late, 1), b"x");
        let _ = target.symlink(&link(late, "x"));
        let _ = target.directory(&directory(late, 0o755));
        assert!(!target.holds(&file(late, 1), whole(b"y")));
    }
    let refused = target.put(&file("d/f/late", 1), b"x").unwrap_err();
    assert_eq!(
        chain(&refused),
        "a symbolic link is in the way to in/d/f/late: links in the destination are not followed"
    );
    assert!(matches!(target.directory(&directory("d", 0o777)), Err(TargetError::LinkInTheWay { .. })));
    assert!(target.finish_directories().iter().any(|(path, ..)| path.as_bytes() == b"d"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_ne!(fs::metadata(&outside).unwrap().mtime_nsec(), 123_456_789);
}

#[test]
fn whoever_swaps_directories_for_links_meanwhile_gets_nothing_outside() {
    let scratch = Scratch::new("race");
    let (inside, outside) = (scratch.0.join("in"), scratch.0.join("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir_all(outside.join("0")).unwrap();
    let target = scratch.open("in", true, TargetOptions::default()).unwrap();
    let attempts = AtomicU32::new(0);
    let write = |number: usize| {
        let name = |rest: &str| format!("d/{}/{rest}{number}", number % 3);
        let _ = target.directory(&directory(&name("directory"), 0o755));
        let _ = target.symlink(&link(&name("link"), "x"));
        if let Ok(partial) = target.partial(&file(&name("partial"), 5), 1 << 20, false) {
            let _ = partial.write_at(0, b"hello").and_then(|()| partial.finish(&file(&name("partial"), 5)));
        }
        let _ = target.put(&file(&name("file"), 1), b"x");
        attempts.fetch_add(1, Ordering::Relaxed);
    };
    let write = &write;
    symlink("../out", inside.join("d")).unwrap();
    std::thread::scope(|scope| {
        let all = |writer: usize| (0..300).for_each(|at| write(at * 3 + writer));
        let writers: Vec<_> = (0..3).map(|writer| scope.spawn(move || all(writer))).collect();
        let done = || writers.iter().all(|writer| writer.is_finished());
        for swap in 0.. {
            // While the link is there each of them comes by.
            let seen = attempts.load(Ordering::Relaxed);
            while attempts.load(Ordering::Relaxed) < seen + 6 && !done() {
                std::thread::yield_now();
            }
            if done() {
                break;
            }
            // Each of these may fail: the writers make what is missing.
            let _ = fs::remove_file(inside.join("d"));
            let _ = fs::rename(inside.join("d"), inside.join(format!("moved{swap}")));
            target.placing.forget();
            let _ = symlink("../out", inside.join("d"));
        }
    });
    // When that is over, everything can be written.
    let _ = fs::remove_file(inside.join("d"));
    target.placing.forget();
    target.put(&file("d/1/last", 1), b"x").unwrap();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_dir(outside.join("0")).unwrap().count(), 0);
}

#[test]
fn what_is_in_the_way_is_replaced_or_named_and_never_opened() {
    let scratch = Scratch::new("way");
    let target = scratch.target();
    fifo(&scratch.0.join("fifo"));
    symlink("nowhere", scratch.0.join("link")).unwrap();
    fs::create_dir(scratch.0.join("directory")).unwrap();
    fs::write(scratch.0.join("file"), "x").unwrap();
    for replaced in ["fifo", "link"] {
        assert!(!target.holds(&file(replaced, 1), whole(b"x")));
        target.put(&file(replaced, 1), b"x").unwrap();
        assert!(fs::symlink_metadata(scratch.0.join(replaced)).unwrap().is_file());
    }
    let said = "a directory is in the way at directory: move it away, or choose another name";
    assert_eq!(target.put(&file("directory", 1), b"x").unwrap_err().to_string(), said);
    assert_eq!(target.symlink(&link("directory", "x")).unwrap_err().to_string(), said);
    assert_eq!(target.partial(&file("directory", 1), 1 << 20, false).unwrap_err().to_string(), said);
    let said = "a file is in the way to file/x: move it away, or choose another name";
    assert_eq!(target.put(&file("file/x", 1), b"x").unwrap_err().to_string(), said);
    assert!(matches!(target.directory(&directory("file", 0o755)), Err(TargetError::FileInTheWay { .. })));
    assert_eq!(scratch.names(), ["directory", "fifo", "file", "link"]);
}

#[test]
fn links_say_what_they_said_and_when() {
    let scratch = Scratch::new("links");
    let target = scratch.target();
    target.put(&file("first", 1), b"x").unwrap();
    for says in ["first", "../../etc/passwd", "first"] {
        for _ in 0..2 {
            target.symlink(&link("link", says)).unwrap();
            let about = fs::symlink_metadata(scratch.0.join("link")).unwrap();
            assert_eq!(fs::read_link(scratch.0.join("link")).unwrap(), Path::new(says));
            assert_eq!((about.mtime(), about.mtime_nsec()), (1_234_567_890, 123_456_789));
        }
    }
    target.symlink(&link("first", "elsewhere")).unwrap();
    assert_eq!(scratch.names(), ["first", "link"]);
}

#[test]
fn a_file_is_held_where_its_content_is_the_same_and_then_set_right() {
    let scratch = Scratch::new("holds");
    let target = scratch.target();
    fs::write(scratch.0.join("file"), "same").unwrap();
    let same = file("file", 4);
    assert!(!target.holds(&same, whole(b"sane")) && !target.holds(&file("file", 5), whole(b"same")));
    assert!(!target.holds(&file("missing", 4), whole(b"same")));
    assert_ne!(fs::metadata(scratch.0.join("file")).unwrap().mtime(), METADATA.mtime_s);
    for _ in 0..2 {
        assert!(target.holds(&same, whole(b"same")));
        let about = fs::metadata(scratch.0.join("file")).unwrap();
        assert_eq!((about.mode() & 0o7777, about.mtime_nsec()), (0o640, 123_456_789));
    }
}

#[test]
fn directories_get_their_modes_and_times_when_all_is_in_them() {
    let scratch = Scratch::new("directories");
    let target =
        scratch.open("top", false, TargetOptions { fsync: true, ..TargetOptions::default() }).unwrap();
    for (path, mode) in [("", 0o711), ("a", 0o555), ("a/b", 0o1777), ("a/b", 0o500), ("a b", 0o700)] {
        target.directory(&directory(path, mode)).unwrap();
    }
    target.put(&file("a/b/c/file", 1), b"x").unwrap();
    assert_eq!(fs::metadata(scratch.0.join("top/a")).unwrap().mode() & 0o700, 0o700);
    assert!(target.finish_directories().is_empty());
    for (path, mode) in [("", 0o711), ("a", 0o555), ("a/b", 0o500), ("a b", 0o700)] {
        let about = fs::metadata(scratch.0.join("top").join(path)).unwrap();
        assert_eq!((about.mode() & 0o7777, about.mtime_nsec()), (mode, 123_456_789), "{path:?}");
    }
    // The next run may write in what the last one closed.
    let again = scratch.open("top", false, TargetOptions::default()).unwrap();
    again.directory(&directory("a/b", 0o500)).unwrap();
    assert_eq!(fs::metadata(scratch.0.join("top/a/b")).unwrap().mode() & 0o7777, 0o700);
    again.put(&file("a/b/more", 1), b"x").unwrap();
    assert!(again.finish_directories().is_empty());
    fs::set_permissions(scratch.0.join("top/a"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scratch.0.join("top/a/b"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_directory_that_was_opened_up_is_left_as_it_was() {
    let scratch = Scratch::new("left");
    let set = |mode| fs::set_permissions(scratch.0.join("there"), Permissions::from_mode(mode)).unwrap();
    let mode = || fs::metadata(scratch.0.join("there")).unwrap().mode() & 0o7777;
    fs::create_dir(scratch.0.join("there")).unwrap();
    set(0o555);
    let target = scratch.target();
    assert!(target.open_up_to(&RelativePath::new("there/file").unwrap()));
    assert_eq!(mode(), 0o755);
    target.leave_directories();
    assert_eq!(mode(), 0o555);
    // What has come to its end is as it is to be.
    assert!(target.open_up_to(&RelativePath::new("there/file").unwrap()));
    target.directory(&directory("there", 0o750)).unwrap();
    assert!(target.finish_directories().is_empty());
    target.leave_directories();
    assert_eq!(mode(), 0o750);
}

#[test]
fn a_private_directory_is_open_to_nobody_else_meanwhile() {
    let scratch = Scratch::new("private");
    let target = scratch.target();
    let mode = |name: &str| fs::metadata(scratch.0.join(name)).unwrap().mode() & 0o7777;
    let directory = |path: &str, mode| Entry {
        metadata: Metadata { mode, ..METADATA },
        ..entry(path.as_bytes(), Kind::Directory)
    };
    fs::create_dir(scratch.0.join("open")).unwrap();
    fs::set_permissions(scratch.0.join("open"), Permissions::from_mode(0o755)).unwrap();
    // What is in it comes before it.
    drop(target.partial(&file("new/below/big", 5), 1 << 20, false).unwrap());
    assert_eq!([mode("new"), mode("new/below")], [0o700; 2]);
    fs::create_dir(scratch.0.join("shared")).unwrap();
    fs::set_permissions(scratch.0.join("shared"), Permissions::from_mode(0o3775)).unwrap();
    let cases =
        [("new", 0o750, 0o700), ("open", 0o500, 0o700), ("made", 0o550, 0o750), ("shared", 0o755, 0o3755)];
    for (name, said, then) in cases {
        target.directory(&directory(name, said)).unwrap();
        assert_eq!(mode(name), then, "{name}");
    }
    assert!(target.finish_directories().is_empty());
    assert_eq!(["new", "open", "made", "shared"].map(mode), [0o750, 0o500, 0o550, 0o755]);
}

#[test]
fn a_directory_that_is_taken_away_is_made_again() {
    let scratch = Scratch::new("away");
    let target = scratch.target();
    target.put(&file("d/e/one", 1), b"x").unwrap();
    fs::remove_dir_all(scratch.0.join("d")).unwrap();
    target.put(&file("d/e/two", 1), b"x").unwrap();
    fs::remove_dir_all(scratch.0.join("d")).unwrap();
    drop(target.partial(&file("d/e/three", 9), 1 << 20, false).unwrap());
    assert!(scratch.0.join("d/e").exists());
}

#[test]
fn leftovers_of_this_command_are_removed_and_nobody_elses() {
    let scratch = Scratch::new("leftovers");
    let target = scratch.target();
    target.directory(&directory("d", 0o755)).unwrap();
    let prefix = &target.prefix;
    let at = |name: &str| scratch.0.join("d").join(name);
    let kept = [
        ".farlink-0000000000000000.tmp",
        ".farlink-0000000000000000.part",
        &format!("{prefix}.tmp"),
        "file.tmp",
    ];
    kept.iter().for_each(|name| fs::write(at(name), "").unwrap());
    fs::write(at(&format!("{prefix}00000001.tmp")), "").unwrap();
    symlink("x", at(&format!("{prefix}00000002.tmp"))).unwrap();
    fs::write(scratch.0.join(format!("{prefix}00000003.tmp")), "").unwrap();
    let written = File::create(at(&format!("{prefix}00000004.tmp"))).unwrap();
    written.lock().unwrap();
    fifo(&at(&format!("{prefix}00000005.tmp")));
    assert_eq!(target.remove_leftovers(), 3);
    assert_eq!(fs::read_dir(scratch.0.join("d")).unwrap().count(), kept.len() + 2);
    assert!(fs::symlink_metadata(at(&format!("{prefix}00000005.tmp"))).unwrap().file_type().is_fifo());
}

#[test]
fn what_is_left_of_another_version_goes_where_a_small_one_comes_or_stands_unless_it_is_written() {
    let scratch = Scratch::new("versions");
    let open =
        |is_again| scratch.open("", true, TargetOptions { is_again, ..TargetOptions::default() }).unwrap();
    let target = open(true);
    let begin = || target.partial(&file("large", 3 << 20), 1 << 20, false).unwrap();
    let count = || fs::read_dir(&scratch.0).unwrap().count();
    let put: fn(&Target) = |target| target.put(&file("large", 1), b"x").unwrap();
    let stands: fn(&Target) = |target| assert!(target.holds(&file("large", 1), whole(b"x")));
    let become_link: fn(&Target) = |target| target.symlink(&link("large", "elsewhere")).unwrap();
    for comes in [put, stands, become_link] {
        let written = begin();
        comes(&target);
        assert_eq!(count(), 3, "somebody writes it");
        drop(written);
        let _ = fs::remove_file(scratch.0.join("large"));
        fs::write(scratch.0.join("large"), "x").unwrap();
        comes(&open(false));
        assert_eq!(count(), 3, "nobody looks for it where there was no earlier run");
        let _ = fs::remove_file(scratch.0.join("large"));
        fs::write(scratch.0.join("large"), "x").unwrap();
        comes(&target);
        assert_eq!(count(), 1);
        let _ = fs::remove_file(scratch.0.join("large"));
        fs::write(scratch.0.join("large"), "x").unwrap();
    }
    // Such as where a link stands already.
    fs::remove_file(scratch.0.join("large")).unwrap();
    symlink("elsewhere", scratch.0.join("large")).unwrap();
    drop(begin());
    become_link(&target);
    assert_eq!(count(), 1);
    // And a journal whose partial file was removed by somebody; and one of those without the other.
    drop(begin());
    let names = target.partial_names(&file("large", 1).path);
    for name in [&names.0, &names.1] {
        drop(begin());
        fs::remove_file(scratch.0.join(OsStr::from_bytes(name))).unwrap();
        put(&target);
        assert_eq!(count(), 1);
    }
}

#[test]
fn a_destination_that_is_moved_away_meanwhile_is_missed() {
    let scratch = Scratch::new("moved-away");
    for is_made_again in [false, true] {
        let target = scratch.open("there", true, TargetOptions::default()).unwrap();
        target.put(&file("one", 1), b"x").unwrap();
        fs::rename(scratch.0.join("there"), scratch.0.join("elsewhere")).unwrap();
        if is_made_again {
            fs::create_dir(scratch.0.join("there")).unwrap();
        }
        let failed = target.finish_directories();
        let said: Vec<_> =
            failed.iter().map(|(path, _, error)| (path.is_root(), error.to_string())).collect();
        assert!(
            matches!(&*said, [(true, said)] if said.contains("there leads to another directory")),
            "{said:?}"
        );
        fs::remove_dir_all(scratch.0.join("elsewhere")).unwrap();
    }
}

#[test]
fn a_link_does_not_take_the_place_of_the_only_file_that_it_leads_to() {
    let scratch = Scratch::new("led-to");
    let target = scratch.open("data", true, TargetOptions::default()).unwrap();
    let at = |name: &str| scratch.0.join("data").join(name);
    fs::create_dir(at("sub")).unwrap();
    for name in ["here", "absolute", "sub/up", "second", "swapped", "other"] {
        fs::write(at(name), "x").unwrap();
    }
    let whole = at("absolute").canonicalize().unwrap();
    fs::hard_link(at("second"), at("first")).unwrap();
    symlink("swapped", at("aside")).unwrap();
    for (name, says, is_refused) in [
        ("here", "here", true),
        ("here", "./sub/../here", true),
        ("sub/up", "../sub/up", true),
        ("absolute", whole.to_str().unwrap(), true),
        // The content has another name.
        ("second", "second", false),
        // Through what this copy may replace as well.
        ("swapped", "aside", false),
        ("other", "here", false),
        ("new", "new", false),
    ] {
        let made = target.symlink(&link(name, says));
        assert_eq!(matches!(made, Err(TargetError::LedTo { .. })), is_refused, "{name} -> {says}: {made:?}");
        assert_eq!(fs::symlink_metadata(at(name)).unwrap().is_symlink(), !is_refused, "{name}");
    }
}
