use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::PathBuf;

use farlink_flow::digest;
use farlink_wire::entry::Metadata;

use super::super::TargetOptions;
use super::super::tests::{METADATA, Scratch, fifo, file};
use super::*;

const BLOCK: u64 = 1 << 20;

/// A file of two and a half blocks.
fn content() -> Vec<u8> {
    (0..BLOCK * 5 / 2).map(|at| (at / 4096 + at % 251) as u8).collect()
}

fn of(content: &[u8]) -> Entry {
    file("big", content.len() as u64)
}

fn block(content: &[u8], index: u32) -> (u64, &[u8], Digest) {
    let start = u64::from(index) * BLOCK;
    let end = (start + BLOCK).min(content.len() as u64);
    let bytes = &content[start as usize..end as usize];
    (start, bytes, digest::block(content.len() as u64, BLOCK, index, bytes))
}

/// Writes a block in pieces, and notes it.
fn write(partial: &Partial, content: &[u8], index: u32) {
    let (start, bytes, digest) = block(content, index);
    for (piece, part) in bytes.chunks(300_000).enumerate() {
        partial.write_at(start + piece as u64 * 300_000, part).unwrap();
    }
    partial.note(index, digest).unwrap();
}

fn proven(partial: &Partial) -> Vec<u32> {
    partial.proven(&mut |_| true).unwrap().into_iter().map(|(index, _)| index).collect()
}

/// Where the file with this ending is.
fn hidden(scratch: &Scratch, ending: &str) -> PathBuf {
    let name = scratch.names().into_iter().find(|name| name.ends_with(ending)).unwrap();
    assert!(name.len() < 40);
    scratch.0.join(name)
}

#[test]
fn blocks_in_any_order_make_a_file_that_appears_whole() {
    let scratch = Scratch::new("partial");
    let (content, target) = (content(), scratch.target());
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    for index in [2, 0, 1] {
        assert!(!scratch.0.join("big").exists());
        write(&partial, &content, index);
    }
    partial.finish(&of(&content)).unwrap();
    let about = fs::metadata(scratch.0.join("big")).unwrap();
    assert!(fs::read(scratch.0.join("big")).unwrap() == content);
    assert_eq!(
        (about.mode() & 0o7777, about.mtime(), about.mtime_nsec()),
        (0o640, METADATA.mtime_s, 123_456_789)
    );
    assert_eq!(scratch.names(), ["big"]);
}

#[test]
fn another_run_finds_what_was_written_and_nothing_that_was_damaged() {
    let scratch = Scratch::new("resume");
    let (content, target) = (content(), scratch.target());
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    assert!(proven(&partial).is_empty());
    write(&partial, &content, 2);
    write(&partial, &content, 0);
    partial.write_at(BLOCK, &[1; 1000]).unwrap();
    drop(partial);
    // The row that was being written when the process was killed.
    let journal = hidden(&scratch, ".journal");
    fs::write(&journal, [&fs::read(&journal).unwrap()[..], &[0; 17]].concat()).unwrap();
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    let mut read = 0;
    let mut count = |bytes| {
        read += bytes;
        true
    };
    let found = partial.proven(&mut count).unwrap();
    assert_eq!(found, [(0, block(&content, 0).2), (2, block(&content, 2).2)]);
    assert_eq!(read, BLOCK * 3 / 2);
    assert!(proven(&partial).is_empty(), "it is told once");
    write(&partial, &content, 1);
    drop(partial);
    let part = File::options().write(true).open(hidden(&scratch, ".part")).unwrap();
    part.write_all_at(&[!content[1234]], 1234).unwrap();
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    assert_eq!(proven(&partial), [1, 2]);
    write(&partial, &content, 0);
    drop(partial);
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    assert_eq!(proven(&partial), [0, 1, 2]);
    partial.finish(&of(&content)).unwrap();
    assert!(fs::read(scratch.0.join("big")).unwrap() == content);
    assert_eq!(scratch.names(), ["big"]);
}

#[test]
fn one_of_ours_that_is_for_reading_only_is_written_to_all_the_same() {
    let scratch = Scratch::new("let-in");
    let directory = Directory::open(&scratch.0).unwrap();
    let place = |name: &str, mode| {
        let path = scratch.0.join(name);
        fs::write(&path, "x").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    place("ours", 0o444);
    place("open", 0o644);
    place("linked", 0o444);
    fs::hard_link(scratch.0.join("linked"), scratch.0.join("other")).unwrap();
    fs::create_dir(scratch.0.join("directory")).unwrap();
    let names = ["ours", "open", "linked", "directory", "nothing"];
    assert_eq!(names.map(|name| let_in(&directory, name.as_bytes())), [true, false, false, false, false]);
    let mode = fs::metadata(scratch.0.join("ours")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn what_somebody_else_put_in_place_of_a_partial_file_gets_no_name() {
    let scratch = Scratch::new("replaced");
    let (content, target) = (content(), scratch.target());
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    (0..3).for_each(|index| write(&partial, &content, index));
    let part = hidden(&scratch, ".part");
    fs::remove_file(&part).unwrap();
    fs::write(&part, vec![0; content.len()]).unwrap();
    assert!(matches!(partial.finish(&of(&content)), Err(TargetError::Replaced { .. })));
    assert!(!scratch.0.join("big").exists());
}

#[test]
fn what_is_not_looked_at_to_the_end_is_still_claimed() {
    for sparse in [false, true] {
        let scratch = Scratch::new(if sparse { "unproven-sparse" } else { "unproven" });
        let (content, target) = (content(), scratch.target());
        let partial = target.partial(&of(&content), BLOCK, sparse).unwrap();
        assert!(!partial.is_unproven());
        (0..2).for_each(|index| write(&partial, &content, index));
        drop(partial);
        let partial = target.partial(&of(&content), BLOCK, sparse).unwrap();
        assert!(partial.is_unproven() && partial.proven(&mut |_| false).is_err());
        drop(partial);
        assert_eq!(proven(&target.partial(&of(&content), BLOCK, sparse).unwrap()), [0, 1]);
    }
}

#[test]
fn another_version_begins_anew() {
    let scratch = Scratch::new("anew");
    let (content, target) = (content(), scratch.target());
    let begun = |entry: &Entry, block_bytes| {
        let partial = target.partial(entry, block_bytes, false).unwrap();
        let found = proven(&partial);
        write(&partial, &content, 0);
        found
    };
    let newer = Entry { metadata: Metadata { mtime_ns: 1, ..METADATA }, ..of(&content) };
    assert!(begun(&of(&content), BLOCK).is_empty());
    assert_eq!(begun(&of(&content), BLOCK), [0]);
    assert!(begun(&newer, BLOCK).is_empty());
    assert!(begun(&of(&content), BLOCK).is_empty());
    assert!(begun(&of(&content), 2 * BLOCK).is_empty());
    assert!(begun(&of(&content), BLOCK).is_empty());
    fs::write(hidden(&scratch, ".journal"), "something else").unwrap();
    assert!(begun(&of(&content), BLOCK).is_empty());
    fs::remove_file(hidden(&scratch, ".part")).unwrap();
    assert!(begun(&of(&content), BLOCK).is_empty(), "a journal speaks of the file beside it alone");
    assert!(matches!(target.partial(&file("big", 0), BLOCK, false), Err(TargetError::Blocks { .. })));
}

#[test]
fn a_second_copy_of_the_same_is_refused_until_the_first_ends() {
    let scratch = Scratch::new("busy");
    let (content, first, second) = (content(), scratch.target(), scratch.target());
    let partial = first.partial(&of(&content), BLOCK, false).unwrap();
    write(&partial, &content, 0);
    let said = second.partial(&of(&content), BLOCK, false).unwrap_err().to_string();
    assert_eq!(said, "another farlink is writing big: wait for it to end, or end it");
    drop(partial);
    assert_eq!(proven(&second.partial(&of(&content), BLOCK, false).unwrap()), [0]);
    // Another process's lock counts as well.
    let part = hidden(&scratch, ".part");
    let mut holder = std::process::Command::new("flock")
        .args([part.as_os_str(), "sh".as_ref(), "-c".as_ref(), "echo held; read line".as_ref()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = [0; 5];
    io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut held).unwrap();
    assert!(matches!(second.partial(&of(&content), BLOCK, false), Err(TargetError::Busy { .. })));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    second.partial(&of(&content), BLOCK, false).unwrap().abandon();
    assert!(scratch.names().is_empty());
}

#[test]
fn what_others_put_under_the_hidden_names_is_neither_followed_nor_written() {
    let scratch = Scratch::new("hidden");
    let (content, target) = (content(), scratch.target());
    drop(target.partial(&of(&content), BLOCK, false).unwrap());
    let names = [hidden(&scratch, ".part"), hidden(&scratch, ".journal")];
    let victim = scratch.0.join("victim");
    fs::write(&victim, "precious").unwrap();
    let plants: [&dyn Fn(&PathBuf); 4] = [
        &|at| symlink(&victim, at).unwrap(),
        &|at| fs::hard_link(&victim, at).unwrap(),
        &|at| fifo(at),
        &|at| drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
    ];
    for plant in plants {
        for name in &names {
            fs::remove_file(name).unwrap();
            plant(name);
        }
        let partial = target.partial(&of(&content), BLOCK, false).unwrap();
        (0..3).for_each(|index| write(&partial, &content, index));
        partial.finish(&of(&content)).unwrap();
        assert!(fs::read(scratch.0.join("big")).unwrap() == content);
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        drop(target.partial(&of(&content), BLOCK, false).unwrap());
    }
    fs::remove_file(&names[0]).unwrap();
    fs::create_dir(&names[0]).unwrap();
    assert!(matches!(
        target.partial(&of(&content), BLOCK, false),
        Err(TargetError::DirectoryInTheWay { .. })
    ));
}

#[test]
fn holes_stay_holes_and_what_was_there_before_does_not_show_through() {
    let scratch = Scratch::new("sparse");
    let mut content = vec![0; 64 << 20];
    content[5 << 20] = 1;
    content[(40 << 20)..(40 << 20) + 8192].fill(2);
    let target = scratch.target();
    let partial = target.partial(&of(&content), BLOCK, true).unwrap();
    // A block that came damaged, one that was cut off, and one that never comes again as there is nothing in it.
    for index in [5, 40, 7] {
        partial.write_at(index * BLOCK, &[9; 500_000]).unwrap();
    }
    write(&partial, &content, 5);
    drop(partial);
    let partial = target.partial(&of(&content), BLOCK, true).unwrap();
    assert_eq!(proven(&partial), [5]);
    write(&partial, &content, 40);
    // The source has other content after all, with the same size and time.
    content[5 << 20] = 0;
    content[(5 << 20) + 9000] = 1;
    write(&partial, &content, 5);
    partial.write_at(11 * BLOCK, &[9; 5000]).unwrap();
    partial.leave_out(10, 3).unwrap();
    assert!(partial.leave_out(60, 5).is_err());
    partial.finish(&of(&content)).unwrap();
    assert!(fs::read(scratch.0.join("big")).unwrap() == content);
    assert!(fs::metadata(scratch.0.join("big")).unwrap().blocks() * 512 <= 256 << 10);
}

#[test]
fn nothing_is_written_beyond_the_end_and_a_file_that_was_cut_is_not_finished() {
    let scratch = Scratch::new("bounds");
    let (content, target) = (content(), scratch.target());
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    partial.write_at(BLOCK, &[1; 5000]).unwrap();
    partial.leave_out(1, 2).unwrap();
    assert!(sparse::is_zero(&fs::read(hidden(&scratch, ".part")).unwrap()));
    for offset in [content.len() as u64 - 1, 3 * BLOCK, u64::MAX] {
        assert!(partial.write_at(offset, &[1; 2]).is_err(), "{offset}");
    }
    File::options().write(true).open(hidden(&scratch, ".part")).unwrap().set_len(5).unwrap();
    assert!(matches!(partial.finish(&of(&content)), Err(TargetError::Size { found: 5, .. })));
    assert!(!scratch.0.join("big").exists());
    partial.write_at(content.len() as u64 - 1, &[1]).unwrap();
    fs::create_dir(scratch.0.join("big")).unwrap();
    assert!(matches!(partial.finish(&of(&content)), Err(TargetError::DirectoryInTheWay { .. })));
    partial.abandon();
    assert_eq!(scratch.names(), ["big"]);
}

#[test]
fn nothing_stays_of_a_file_that_does_not_get_to_the_disk() {
    use std::os::unix::fs::OpenOptionsExt;
    // A descriptor of open(2)'s O_PATH can be looked at, and not be synced.
    const PATH: i32 = 0o10_000_000;
    let content = content();
    let digests: Vec<_> = (0..3).map(|index| block(&content, index).2).collect();
    for read_back in [false, true] {
        let scratch = Scratch::new(if read_back { "unsynced-read-back" } else { "unsynced" });
        let target =
            scratch.open("", true, TargetOptions { fsync: true, read_back, ..TargetOptions::default() });
        let target = target.unwrap();
        let mut partial = target.partial(&of(&content), BLOCK, false).unwrap();
        (0..3).for_each(|index| write(&partial, &content, index));
        partial.file =
            Locked(File::options().read(true).custom_flags(PATH).open(hidden(&scratch, ".part")).unwrap());
        let failed = if read_back {
            partial.read_back(&digests, &mut |_| true).map(drop)
        } else {
            partial.finish(&of(&content))
        };
        assert!(failed.unwrap_err().to_string().starts_with("write to the disk"));
        partial.leave();
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    }
}

#[test]
fn what_the_disk_changed_is_found_when_it_is_read_back_and_only_that_comes_again() {
    let scratch = Scratch::new("partial");
    let content = content();
    let options = TargetOptions { fsync: true, read_back: true, ..TargetOptions::default() };
    let target = scratch.open("", true, options).unwrap();
    let digests: Vec<_> = (0..3).map(|index| block(&content, index).2).collect();
    let partial = target.partial(&of(&content), BLOCK, false).unwrap();
    (0..3).for_each(|index| write(&partial, &content, index));
    assert!(partial.read_back(&digests, &mut |_| true).unwrap().is_empty());
    let there = fs::OpenOptions::new().write(true).open(hidden(&scratch, ".part")).unwrap();
    there.write_all_at(&[content[BLOCK as usize + 5] ^ 1], BLOCK + 5).unwrap();
    assert_eq!(partial.read_back(&digests, &mut |_| true).unwrap(), [1]);
    drop(partial);
    let again = target.partial(&of(&content), BLOCK, false).unwrap();
    assert_eq!(proven(&again), [0, 2]);
    // A block that was not hashed has no digest to be compared with.
    assert!(again.read_back(&[digests[0], Digest::default(), digests[2]], &mut |_| true).unwrap().is_empty());
}
