use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::chain;
use farlink_wire::message::copy::Rule;

/// A directory that is gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("source-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn source(&self, rest: &str) -> SourcePath {
        SourcePath::new([self.0.as_os_str().as_bytes(), rest.as_bytes()].concat()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn root() -> Arc<Directory> {
    Arc::new(Directory::open(Path::new("/")).unwrap())
}

/// A line for each thing that is found.
fn lines(base: &Arc<Directory>, sources: &[SourcePath], filter: &Filter) -> Vec<String> {
    walk(base, sources, filter).map(|found| line(&found)).collect()
}

fn walk<'f>(base: &Arc<Directory>, sources: &[SourcePath], filter: &'f Filter) -> Walk<'f> {
    let sources: Vec<_> = sources.iter().map(|source| (Arc::clone(base), source.clone())).collect();
    Walk::new(&sources, filter)
}

fn line(found: &Found) -> String {
    match found {
        Found::Entry(entry, _) => match &entry.kind {
            Kind::File { size } => format!("{} {size}", entry.path),
            Kind::Directory => format!("{}/", entry.path),
            Kind::Symlink { target } => format!("{} -> {}", entry.path, readable(target)),
        },
        Found::Skipped { path, what } => format!("{path} is {what}"),
        Found::LeftOut { path, why: LeftOut::Unfinished } => format!("{path} is unfinished"),
        Found::LeftOut { path, .. } => format!("{path} is later"),
        Found::Failed { path, lack, error } => format!("{path} {lack:?}: {}", chain(error)),
    }
}

fn tree(scratch: &Scratch) {
    let at = |name: &str| scratch.0.join(name);
    fs::create_dir_all(at("tree/b/empty")).unwrap();
    fs::write(at("tree/b/two"), "22").unwrap();
    fs::write(at("tree/a\n"), "1").unwrap();
    fs::write(at("tree").join(std::ffi::OsStr::from_bytes(b"c\xff")), "").unwrap();
    symlink("/etc", at("tree/etc")).unwrap();
    symlink("tree", at("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("tree/socket")).unwrap();
}

#[test]
fn what_another_copy_has_not_finished_stays_out_unless_it_is_named() {
    let scratch = Scratch::new("unfinished");
    let unfinished = [".farlink-0123456789abcdef.journal", ".farlink-0123456789abcdef.part"];
    let others = [".farlink-0123456789abcdef.Part", ".farlink-012345.part", ".farlink-notes.part"];
    unfinished.iter().chain(&others).for_each(|name| fs::write(scratch.0.join(name), "x").unwrap());
    fs::create_dir(scratch.0.join(".farlink-0123456789abcdef.tmp")).unwrap();
    let none = Filter::default();
    let mut expected: Vec<_> = unfinished.iter().map(|name| format!("{name} is unfinished")).collect();
    expected.extend(others.iter().map(|name| format!("{name} 1")));
    expected.push(".farlink-0123456789abcdef.tmp/".to_owned());
    expected.push("./".to_owned());
    expected.sort();
    let mut found = lines(&root(), &[scratch.source("/")], &none);
    found.sort();
    assert_eq!(found, expected);
    let named = [scratch.source(&format!("/{}", unfinished[1]))];
    assert_eq!(lines(&root(), &named, &none), [format!("{} 1", unfinished[1])]);
}

#[test]
fn a_tree_comes_by_its_name_or_as_its_content() {
    let scratch = Scratch::new("tree");
    tree(&scratch);
    let none = Filter::default();
    let content = ["a%0A 1", "b/", "b/empty/", "b/two 2", "c%FF 0", "etc -> /etc", "socket is a socket"];
    let named = std::iter::once("tree/".into()).chain(content.iter().map(|line| format!("tree/{line}")));
    assert_eq!(lines(&root(), &[scratch.source("/tree")], &none), named.collect::<Vec<_>>());
    for contents in ["/tree/", "/tree/.", "/tree/b/..", "/link/"] {
        let expected = std::iter::once(&"./").chain(&content).copied().collect::<Vec<_>>();
        assert_eq!(lines(&root(), &[scratch.source(contents)], &none), expected, "{contents}");
    }
    assert_eq!(lines(&root(), &[scratch.source("/link")], &none), ["link -> tree"]);
    let several =
        [scratch.source("/tree/b/two"), scratch.source("/missing"), scratch.source("/tree/b/empty")];
    let found = lines(&root(), &several, &none);
    assert!(found[1].ends_with("/missing: No such file or directory (os error 2)"), "{found:?}");
    assert_eq!((&found[0][..], &found[2][..], found.len()), ("two 2", "empty/", 3));
}

#[test]
fn of_sources_with_the_same_names_the_first_has_them() {
    let scratch = Scratch::new("same");
    let at = |name: &str| scratch.0.join(name);
    for side in ["a", "b"] {
        fs::create_dir_all(at(side).join("sub/own")).unwrap();
        fs::create_dir(at(side).join(format!("only-{side}"))).unwrap();
        fs::write(at(side).join("sub/file"), side.repeat(if side == "a" { 1 } else { 2 })).unwrap();
    }
    fs::write(at("a/mixed"), "").unwrap();
    fs::create_dir(at("b/mixed")).unwrap();
    fs::write(at("b/mixed/x"), "").unwrap();
    let none = Filter::default();
    let both = [scratch.source("/a/"), scratch.source("/b/")];
    let expected = [
        "./",
        "mixed 0",
        "only-a/",
        "sub/",
        "sub/file 1",
        "sub/own/",
        "mixed is later",
        "only-b/",
        "sub/file is later",
    ];
    assert_eq!(lines(&root(), &both, &none), expected);
    let subs = [scratch.source("/a/sub"), scratch.source("/b/sub"), scratch.source("/b/mixed")];
    let expected = ["sub/", "sub/file 1", "sub/own/", "sub/file is later", "mixed/", "mixed/x 0"];
    assert_eq!(lines(&root(), &subs, &none), expected);
}

#[test]
fn what_is_left_out_is_not_looked_into() {
    let scratch = Scratch::new("filter");
    tree(&scratch);
    let rule = |include, pattern: &str| Rule { include, pattern: pattern.into() };
    let filter = Filter::new(&[rule(false, "/tree/b/"), rule(false, "c*"), rule(false, "socket")]).unwrap();
    let found = lines(&root(), &[scratch.source("/tree")], &filter);
    assert_eq!(found, ["tree/", "tree/a%0A 1", "tree/etc -> /etc"]);
}

#[test]
fn nothing_outside_of_what_may_be_read_is_found() {
    let scratch = Scratch::new("granted");
    fs::create_dir(scratch.0.join("granted")).unwrap();
    fs::write(scratch.0.join("secret"), "x").unwrap();
    symlink("..", scratch.0.join("granted/up")).unwrap();
    let granted = Arc::new(Directory::open(&scratch.0.join("granted")).unwrap());
    for out in ["../secret", "..", "up/secret", "up/", "/up/."] {
        let sources = [SourcePath::new(out).unwrap()];
        let found = lines(&granted, &sources, &Filter::default());
        assert!(
            found.len() == 1 && found[0].ends_with("it leads out of the directory that may be read"),
            "{out}: {found:?}"
        );
    }
    assert_eq!(lines(&granted, &[SourcePath::new("up").unwrap()], &Filter::default()), ["up -> .."]);
}

#[test]
fn a_directory_that_becomes_a_link_is_not_followed() {
    let scratch = Scratch::new("swap");
    tree(&scratch);
    let mut walk = walk(&root(), &[scratch.source("/tree")], &NOTHING);
    let at_b = walk.find(|found| line(found) == "tree/b/");
    assert!(at_b.is_some());
    fs::rename(scratch.0.join("tree/b"), scratch.0.join("moved")).unwrap();
    symlink("/etc", scratch.0.join("tree/b")).unwrap();
    let next = line(&walk.next().unwrap());
    assert_eq!(next, "tree/b Unfinished: list tree/b: a symbolic link has taken its place, or is in the way");
    assert_eq!(line(&walk.next().unwrap()), "tree/c%FF 0");
}

static NOTHING: std::sync::LazyLock<Filter> = std::sync::LazyLock::new(Filter::default);

#[test]
fn a_file_that_changes_or_goes_is_told() {
    let scratch = Scratch::new("changes");
    let path = scratch.0.join("file");
    fs::write(&path, [7; 100]).unwrap();
    let Some(Found::Entry(entry, handle)) = walk(&root(), &[scratch.source("/file")], &NOTHING).next() else {
        panic!("no file");
    };
    assert_eq!(entry.kind, Kind::File { size: 100 });
    let open = handle.open().unwrap();
    let mut buffer = [0; 60];
    assert_eq!(open.read_at(50, &mut buffer).unwrap(), 50);
    assert!(buffer[..50] == [7; 50] && open.is_unchanged().unwrap());
    let extents: Vec<_> = open.data_extents().map(Result::unwrap).collect();
    assert!(extents.len() == 1 && extents[0] == (0..100), "{extents:?}");
    File::options().append(true).open(&path).unwrap().write_at(b"more", 0).unwrap();
    assert!(!open.is_unchanged().unwrap());
    fs::remove_file(&path).unwrap();
    assert!(chain(&handle.open().unwrap_err()).starts_with("open file: No such file"));
    // Other content under the same name, whatever its inode is: the time of modification differs.
    fs::write(&path, [8; 100]).unwrap();
    assert!(handle.open().is_err() || !handle.open().unwrap().is_unchanged().unwrap());
    fs::remove_file(&path).unwrap();
    symlink("/etc/hostname", &path).unwrap();
    assert!(handle.open().is_err());
}

#[test]
fn holes_are_found_in_the_walk_and_skipped_in_the_file() {
    let scratch = Scratch::new("holes");
    let file = File::create_new(scratch.0.join("file")).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(&[1; 4096], 1 << 39).unwrap();
    drop(file);
    let Some(Found::Entry(_, handle)) = walk(&root(), &[scratch.source("/file")], &NOTHING).next() else {
        panic!("no file");
    };
    assert!(handle.is_sparse());
    let extents: Vec<_> = handle.open().unwrap().data_extents().map(Result::unwrap).collect();
    assert!(extents.len() == 1 && extents[0].contains(&(1 << 39)), "{extents:?}");
}

#[test]
fn listed_names_are_found_with_the_directories_above_them_and_all_that_is_in_them() {
    let scratch = Scratch::new("listed");
    fs::create_dir_all(scratch.0.join("a/b/c")).unwrap();
    for name in ["a/one", "a/b/two", "a/b/c/three", "four", "five"] {
        fs::write(scratch.0.join(name), name).unwrap();
    }
    symlink("a", scratch.0.join("link")).unwrap();
    let name = |name: &str| farlink_wire::message::copy::Place::new(name).unwrap();
    let rules = [Rule { include: false, pattern: "three".to_owned() }];
    let filter = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|each| name(each)).collect();
        Filter::new(&rules).unwrap().only(Some(&names)).unwrap()
    };
    let found = |names: &[&str]| lines(&root(), &[scratch.source("/")], &filter(names));
    assert_eq!(found(&["four", "a/b"]), ["./", "a/", "a/b/", "a/b/c/", "a/b/two 7", "four 4"]);
    assert_eq!(found(&["a/one", "a/one", "link"]), ["./", "a/", "a/one 5", "link -> a"]);
    assert_eq!(found(&[]), ["./"]);
    assert_eq!(found(&["a/b/c/three"]), ["./", "a/", "a/b/", "a/b/c/"]);
    let no_b = Filter::new(&[Rule { include: false, pattern: "b/".to_owned() }]).unwrap();
    let no_b = no_b.only(Some(&[name("a/b/c/three"), name("four")])).unwrap();
    assert_eq!(lines(&root(), &[scratch.source("/")], &no_b), ["./", "a/", "four 4"]);
    let [_, four, gone, through] = &found(&["gone/x", "link/one", "four"])[..] else { panic!("four things") };
    assert!(gone.starts_with("gone/x Failed: ") && gone.contains("No such file"), "{gone}");
    assert!(through.starts_with("link/one Failed: "), "{through}");
    assert_eq!(four, "four 4");
    let outside = Filter::default().only(Some(&[name("../x")])).unwrap_err();
    assert!(chain(&outside).contains("\"..\""), "{outside}");
}

#[test]
fn a_pattern_is_walked_as_what_it_stands_for() {
    let scratch = Scratch::new("pattern");
    tree(&scratch);
    let at = |name: &str| scratch.0.join(name);
    fs::create_dir_all(at("other/b")).unwrap();
    fs::write(at("other/b/x"), "12").unwrap();
    fs::write(at("other/a"), "1").unwrap();
    let pattern = |rest: &str| SourcePath::pattern(scratch.source(rest).as_bytes().to_vec()).unwrap();
    let found = |rest: &str| lines(&root(), &[pattern(rest)], &Filter::default());
    assert_eq!(found("/o*/?"), ["a 1", "b/", "b/x 2"]);
    let each: Vec<_> = found("/*/b");
    // What several directories have is merged, as where each was named.
    assert_eq!(each.iter().filter(|line| *line == "b/").count(), 1, "{each:?}");
    assert!(each.contains(&"b/x 2".to_owned()) && each.contains(&"b/empty/".to_owned()), "{each:?}");
    assert!(found("/none*")[0].contains("No such file"), "{:?}", found("/none*"));
    assert!(found("/none/*")[0].contains("No such file"), "{:?}", found("/none/*"));
}

#[test]
fn directories_that_sources_are_beneath_are_counted_while_something_of_them_is_held() {
    // Other tests of this process have some, too.
    let _ = farlink_host::process::raise_descriptor_limit(u64::MAX);
    let scratch = Scratch::new("trees");
    let sources: Vec<_> =
        (0..=MOST_TREES).map(|number| scratch.source(&format!("/{number}/x{number}"))).collect();
    for number in 0..=MOST_TREES {
        fs::create_dir(scratch.0.join(number.to_string())).unwrap();
        fs::write(scratch.0.join(format!("{number}/x{number}")), "").unwrap();
    }
    let filter = Filter::default();
    let mut walk = walk(&root(), &sources, &filter);
    let mut held = Vec::new();
    for _ in 0..=MOST_TREES {
        assert!(!walk.has_many_open());
        held.push(walk.next().unwrap());
    }
    assert!(walk.has_many_open());
    held.pop();
    held.pop();
    assert!(!walk.has_many_open());
}
