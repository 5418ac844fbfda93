use std::fs;
use std::io::Read;

use super::*;

/// A directory that is watched, and another beside it, which are gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("feed-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("top")).unwrap();
        fs::create_dir_all(path.join("beside")).unwrap();
        Self(path)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn feed(&self, end: &str) -> Feed {
        let source = SourcePath::new(self.at(end).as_os_str().as_bytes()).unwrap();
        Feed::new(&source).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names and contents of what appeared.
fn seen(feed: &mut Feed) -> Vec<(String, String)> {
    feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
    let mut all = Vec::new();
    while let Some(seen) = feed.next() {
        match seen {
            Seen::File { name, mut file, status, place } => {
                let mut content = String::new();
                file.read_to_string(&mut content).unwrap();
                assert_eq!(status.size, content.len() as u64);
                assert!(status_of(&place.open().unwrap()).unwrap().is_same_file(&status));
                all.push((name.to_string(), content));
            }
            seen @ (Seen::NotSent(_) | Seen::Lacking { .. }) => panic!("{seen:?}"),
            Seen::Nothing => {}
        }
    }
    all
}

fn pair(name: &str, content: &str) -> (String, String) {
    (name.to_owned(), content.to_owned())
}

#[test]
fn the_names_of_files_that_are_gone_do_not_pile_up() {
    let scratch = Scratch::new("rotated");
    let mut feed = scratch.feed("top/");
    for number in 0..100 {
        let name = scratch.at(&format!("top/{number}"));
        fs::write(&name, "x").unwrap();
        feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
        if number % 50 > 0 {
            fs::remove_file(&name).unwrap();
        }
        assert!(feed.appeared.len() <= 9 && feed.waiting.len() == feed.appeared.len());
    }
    let names: Vec<_> = seen(&mut feed).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0", "50"]);
}

#[test]
fn a_file_has_the_name_that_a_walk_gives_it() {
    let scratch = Scratch::new("names");
    std::os::unix::fs::symlink("top", scratch.at("link")).unwrap();
    for (source, name) in [("top", "top/a/b"), ("top/", "a/b"), ("link", "link/a/b"), ("link/", "a/b")] {
        let mut feed = scratch.feed(source);
        fs::create_dir(scratch.at("top/a")).unwrap();
        fs::write(scratch.at("top/a/b"), "content").unwrap();
        assert_eq!(seen(&mut feed), [pair(name, "content")]);
        fs::remove_dir_all(scratch.at("top/a")).unwrap();
    }
}

#[test]
fn a_directory_that_is_renamed_and_made_again_is_another_one() {
    let scratch = Scratch::new("again");
    fs::create_dir_all(scratch.at("top/a/b")).unwrap();
    let mut feed = scratch.feed("top");
    fs::write(scratch.at("top/a/b/x"), "old").unwrap();
    assert_eq!(seen(&mut feed), [pair("top/a/b/x", "old")]);
    for to in ["beside/a", "top/c"] {
        fs::rename(scratch.at("top/a"), scratch.at(to)).unwrap();
        fs::create_dir_all(scratch.at("top/a/b")).unwrap();
        assert!(seen(&mut feed).iter().all(|(name, _)| name.starts_with("top/c/")));
        fs::write(scratch.at("top/a/b/x"), format!("newer than {to}")).unwrap();
        fs::write(scratch.at("top/a/b/y"), "new").unwrap();
        let newer = pair("top/a/b/x", &format!("newer than {to}"));
        assert_eq!(seen(&mut feed), [newer, pair("top/a/b/y", "new")]);
    }
}

#[test]
fn what_had_another_name_before_it_was_complete_is_no_failure() {
    let scratch = Scratch::new("part");
    let mut feed = scratch.feed("top");
    fs::create_dir(scratch.at("top/a")).unwrap();
    assert_eq!(seen(&mut feed), []);
    fs::write(scratch.at("top/a/x.part"), "content").unwrap();
    fs::rename(scratch.at("top/a/x.part"), scratch.at("top/a/x")).unwrap();
    // And where all of the directory was such.
    fs::write(scratch.at("top/a/y"), "more").unwrap();
    fs::rename(scratch.at("top/a"), scratch.at("top/b")).unwrap();
    fs::write(scratch.at("top/a"), "a file").unwrap();
    assert_eq!(
        seen(&mut feed),
        [pair("top/b/x", "content"), pair("top/b/y", "more"), pair("top/a", "a file")]
    );
}

#[test]
fn what_was_finished_before_the_watching_was_ended_is_sent() {
    let scratch = Scratch::new("ended");
    let mut feed = scratch.feed("top");
    fs::write(scratch.at("top/x"), "content").unwrap();
    feed.cease(&mut |not_sent| panic!("{not_sent:?}"));
    fs::write(scratch.at("top/y"), "too late").unwrap();
    assert!(feed.watched().is_none() && !feed.has_ceased() && feed.waiting() == 1);
    assert_eq!(seen(&mut feed), [pair("top/x", "content")]);
    assert!(feed.has_ceased());
}

#[test]
fn what_appears_again_before_its_turn_is_looked_at_once() {
    let scratch = Scratch::new("turns");
    let mut feed = scratch.feed("top");
    for content in ["one", "two", "three"] {
        fs::write(scratch.at("top/x"), content).unwrap();
        feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
    }
    assert_eq!((feed.appeared.len(), feed.waiting.len()), (1, 1));
    assert_eq!(seen(&mut feed), [pair("top/x", "three")]);
    assert!(feed.waiting.is_empty());
}

/// What a product is of that is `content`, under the name `top/x`, where that appears.
fn product(scratch: &Scratch, feed: &mut Feed, content: &str) -> (Place, Status) {
    fs::write(scratch.at("top/x"), content).unwrap();
    notice(feed);
    match feed.next() {
        Some(Seen::File { place, status, .. }) => (place, status),
        other => panic!("{other:?}"),
    }
}

fn notice(feed: &mut Feed) {
    feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
}

#[test]
fn receivers_lack_what_was_to_be_sent_in_the_place_of_another_and_is_gone() {
    let scratch = Scratch::new("replacing");
    let mut feed = scratch.feed("top");
    let (its, then) = product(&scratch, &mut feed, "one");
    assert!(!feed.replaces(&its, &then));
    // One that waits, and is sent.
    fs::write(scratch.at("top/x"), "second").unwrap();
    notice(&mut feed);
    assert!(feed.replaces(&its, &then));
    assert_eq!(seen(&mut feed), [pair("top/x", "second")]);
    assert!(feed.replacing.is_empty());
    // One that waits, and is deleted, or becomes something else, before its turn.
    let is_gone: fn(&Path) = |_| {};
    let is_link: fn(&Path) = |path| std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
    for make in [is_gone, is_link] {
        fs::write(scratch.at("top/x"), "the third").unwrap();
        notice(&mut feed);
        assert!(feed.replaces(&its, &then));
        fs::remove_file(scratch.at("top/x")).unwrap();
        make(&scratch.at("top/x"));
        assert_eq!(feed.waiting(), 1);
        match feed.next() {
            Some(Seen::Lacking { name, reason }) => {
                assert_eq!((name.to_string().as_str(), reason.as_str()), ("top/x", REPLACED));
            }
            other => panic!("{other:?}"),
        }
        assert!(feed.next().is_none() && feed.replacing.is_empty());
        let _ = fs::remove_file(scratch.at("top/x"));
    }
    // One that is gone when it is asked for: nothing is to come.
    assert!(!feed.replaces(&its, &then));
}

#[test]
fn a_file_of_which_somebody_sets_the_time_when_it_is_complete_is_sent_again() {
    let scratch = Scratch::new("times");
    let mut feed = scratch.feed("top");
    let (its, then) = product(&scratch, &mut feed, "one");
    let touch = |seconds| {
        let file = File::open(scratch.at("top/x")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    };
    touch(7);
    notice(&mut feed);
    assert!(feed.waiting.is_empty(), "the kernel says nothing of times");
    assert!(feed.replaces(&its, &then));
    match feed.next() {
        Some(Seen::File { place, status, .. }) => {
            assert!(!feed.replaces(&place, &status), "it is as it was");
            // Once: a file that is written all the time is not sent over and over.
            touch(8);
            assert!(!feed.replaces(&place, &status));
        }
        other => panic!("{other:?}"),
    }
    let (its, then) = product(&scratch, &mut feed, "another");
    touch(9);
    assert!(feed.replaces(&its, &then));
    feed.cease(&mut |not_sent| panic!("{not_sent:?}"));
    assert_eq!(seen(&mut feed), [pair("top/x", "another")]);
    touch(10);
    assert!(!feed.replaces(&its, &then) && feed.has_ceased());
}

#[test]
fn a_file_that_is_being_written_again_is_sent_when_it_is_complete() {
    use std::io::Write;
    let scratch = Scratch::new("rewritten");
    let mut feed = scratch.feed("top");
    for ceases in [false, true] {
        let (its, then) = product(&scratch, &mut feed, "the first");
        let mut file = File::create(scratch.at("top/x")).unwrap();
        file.write_all(b"half").unwrap();
        assert!(feed.replaces(&its, &then) && feed.replaces(&its, &then));
        assert!(matches!(feed.next(), Some(Seen::Nothing)));
        notice(&mut feed);
        assert!(feed.next().is_none() && feed.replacing.len() == 1);
        if ceases {
            // Nobody will tell when it is: what is there is sent.
            feed.cease(&mut |not_sent| panic!("{not_sent:?}"));
            assert!(!feed.has_ceased());
            assert_eq!(seen(&mut feed), [pair("top/x", "half")]);
        } else {
            file.write_all(b" and half").unwrap();
            drop(file);
            assert_eq!(seen(&mut feed), [pair("top/x", "half and half")]);
        }
        assert!(feed.replacing.is_empty());
    }
    assert!(feed.has_ceased());
}

#[test]
fn a_directory_that_is_removed_while_a_file_in_it_is_open_is_missed() {
    let scratch = Scratch::new("removed-with-open");
    let mut feed = scratch.feed("top");
    product(&scratch, &mut feed, "open");
    let file = File::open(scratch.at("top/x")).unwrap();
    feed.looks_at = Nanos::ZERO;
    assert!(feed.next().is_none() && !feed.has_ceased());
    fs::remove_dir_all(scratch.at("top")).unwrap();
    notice(&mut feed);
    assert!(!feed.has_ceased(), "the kernel does not tell");
    fs::create_dir(scratch.at("top")).unwrap();
    feed.looks_at = Nanos::ZERO;
    let Some(Seen::NotSent(told)) = feed.next() else { panic!("nothing was said") };
    assert!(told.failed && told.reason.contains("moved or removed"), "{}", told.reason);
    assert!(feed.next().is_none() && feed.has_ceased());
    drop(file);
}

#[test]
fn a_file_that_is_being_written_again_and_gets_another_name_meanwhile_is_lacking() {
    let scratch = Scratch::new("renamed");
    let mut feed = scratch.feed("top");
    let (its, then) = product(&scratch, &mut feed, "the first");
    let file = File::create(scratch.at("top/x")).unwrap();
    assert!(feed.replaces(&its, &then));
    assert!(matches!(feed.next(), Some(Seen::Nothing)));
    feed.looks_at = Nanos::ZERO;
    assert!(feed.next().is_none(), "it is being written still");
    fs::rename(scratch.at("top/x"), scratch.at("beside/x")).unwrap();
    drop(file);
    notice(&mut feed);
    feed.looks_at = Nanos::MAX;
    assert!(feed.next().is_none(), "it was looked at just now");
    feed.looks_at = Nanos::ZERO;
    assert!(matches!(feed.next(), Some(Seen::Lacking { .. })));
    assert!(feed.next().is_none() && feed.replacing.is_empty());
}

#[test]
fn a_file_that_was_named_is_replaced_by_what_appears_under_its_name() {
    let scratch = Scratch::new("named");
    fs::write(scratch.at("top/x"), "one").unwrap();
    let then = status_of(&File::open(scratch.at("top/x")).unwrap()).unwrap();
    let other = status_of(&File::open(scratch.at("top")).unwrap()).unwrap();
    for (source, name, elsewhere) in [("top", "top/x", "x"), ("top/", "x", "y/x")] {
        let mut feed = scratch.feed(source);
        let name = RelativePath::new(name).unwrap();
        let _ = seen(&mut feed);
        assert!(!feed.replaces_named(&name, &then));
        fs::write(scratch.at("top/x"), format!("more than one, as {name}")).unwrap();
        // Before the kernel's word, and after it.
        assert!(!feed.replaces_named(&name, &other), "another file, of another directory with such a name");
        assert!(!feed.replaces_named(&RelativePath::new(elsewhere).unwrap(), &then));
        assert!(feed.replaces_named(&name, &then));
        notice(&mut feed);
        assert!(feed.replaces_named(&name, &then));
        assert_eq!(seen(&mut feed).len(), 1);
        fs::write(scratch.at("top/x"), "one").unwrap();
        drop(feed);
        File::open(scratch.at("top/x")).unwrap().set_modified(modified(&then)).unwrap();
    }
}

fn modified(status: &Status) -> std::time::SystemTime {
    let since = std::time::Duration::new(status.mtime_s as u64, status.mtime_ns);
    std::time::UNIX_EPOCH + since
}

#[test]
fn what_is_no_file_is_named() {
    let scratch = Scratch::new("kinds");
    let mut feed = scratch.feed("top");
    std::os::unix::fs::symlink("/etc/passwd", scratch.at("beside/link")).unwrap();
    fs::rename(scratch.at("beside/link"), scratch.at("top/link")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(scratch.at("beside/socket")).unwrap());
    fs::rename(scratch.at("beside/socket"), scratch.at("top/socket")).unwrap();
    feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
    for name in ["top/link", "top/socket"] {
        match feed.next() {
            Some(Seen::NotSent(not_sent)) => {
                assert_eq!((&*not_sent.path, not_sent.failed), (name, false));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(feed.next().is_none());
}

#[test]
fn a_top_that_is_moved_or_removed_ends_it_and_is_named() {
    for is_moved in [true, false] {
        let scratch = Scratch::new(if is_moved { "moved" } else { "removed" });
        let mut feed = scratch.feed("top");
        fs::write(scratch.at("top/x"), "content").unwrap();
        let looked_at = {
            feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
            feed.next()
        };
        assert!(matches!(looked_at, Some(Seen::File { .. })));
        drop(looked_at);
        if is_moved {
            fs::rename(scratch.at("top"), scratch.at("beside/top")).unwrap();
        } else {
            fs::remove_dir_all(scratch.at("top")).unwrap();
        }
        fs::create_dir(scratch.at("top")).unwrap();
        let mut told = Vec::new();
        feed.notice(&mut |not_sent| told.push(not_sent));
        assert_eq!(told.len(), 1);
        let top = scratch.at("top").canonicalize().unwrap();
        assert_eq!((told[0].path.as_str(), told[0].failed), (top.to_str().unwrap(), true));
        assert!(told[0].reason.contains("moved or removed") && feed.has_ceased());
    }
}

#[test]
fn what_was_linked_while_it_was_written_appears_when_it_is_complete() {
    let scratch = Scratch::new("linked");
    let mut feed = scratch.feed("top/");
    // As one without a name until then (`O_TMPFILE`): what the kernel tells of its end is of another name.
    let mut file = File::create(scratch.at("top/.part")).unwrap();
    fs::hard_link(scratch.at("top/.part"), scratch.at("top/x")).unwrap();
    fs::remove_file(scratch.at("top/.part")).unwrap();
    // And one that is empty, and that nobody writes to.
    fs::write(scratch.at("top/.none"), "").unwrap();
    fs::hard_link(scratch.at("top/.none"), scratch.at("top/marker")).unwrap();
    fs::remove_file(scratch.at("top/.none")).unwrap();
    let look = |feed: &mut Feed| {
        feed.looks_at = Nanos::ZERO;
        seen(feed)
    };
    assert_eq!(look(&mut feed), []);
    assert_eq!(look(&mut feed), [pair("marker", "")]);
    std::io::Write::write_all(&mut file, b"whole").unwrap();
    assert_eq!(look(&mut feed), []);
    drop(file);
    assert_eq!(look(&mut feed), []);
    assert_eq!(look(&mut feed), [pair("x", "whole")]);
    assert_eq!(look(&mut feed), []);
    // Such as the kernel tells of are sent once, however often it is looked.
    let mut usual = File::create(scratch.at("top/usual")).unwrap();
    assert_eq!(look(&mut feed), []);
    std::io::Write::write_all(&mut usual, b"one").unwrap();
    drop(usual);
    assert_eq!(look(&mut feed), [pair("usual", "one")]);
    assert_eq!(look(&mut feed), []);
    assert!(feed.begun.is_empty());
}
