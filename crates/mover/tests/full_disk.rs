//! A disk that fills up, and one that may not be written: file systems of the test's own, in a mount namespace of its own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use farlink_flow::digest;
use farlink_host::beneath::Directory;
use farlink_mover::chain;
use farlink_mover::copy::target::{Destination, Partial, Target, TargetError, TargetOptions};
use farlink_wire::entry::{Entry, Kind, Metadata};
use farlink_wire::path::RelativePath;

#[test]
fn a_full_disk_is_told_and_nothing_is_left_under_a_final_name() {
    on_a_disk_of_its_own("a_full_disk_is_told_and_nothing_is_left_under_a_final_name", |disk| {
        let target = target(disk);
        let names = || fs::read_dir(disk).unwrap().map(|each| each.unwrap().file_name()).collect::<Vec<_>>();
        let error = target.put(&file("small", 2 << 20), &vec![1; 2 << 20]).unwrap_err();
        assert_eq!(chain(&error), format!("write disk/small{FULL}"));
        assert!(names().is_empty(), "{:?}", names());

        // A large one is refused before anything of it is written, unless what is there of it already leaves room for the rest.
        let big = file("big", 2 << 20);
        let error = target.partial(&big, 1 << 20, false).unwrap_err();
        assert_eq!(chain(&error), format!("reserve room for disk/big{FULL}"));
        assert!(names().is_empty(), "{:?}", names());
        let fits = file("fits", 700 << 10);
        let partial = target.partial(&fits, 1 << 20, false).unwrap();
        partial.write_at(0, &vec![1; 600 << 10]).unwrap();
        drop(partial);
        target.partial(&fits, 1 << 20, false).unwrap().abandon();
        assert!(names().is_empty(), "{:?}", names());

        // Where nothing is reserved it is found when it is written.
        let partial = target.partial(&big, 1 << 20, true).unwrap();
        let filler = File::create_new(disk.join("filler")).unwrap();
        let filled = (0..).find(|at| filler.write_at(&[1; 4096], at * 4096).is_err());
        assert!(filled.is_some());
        let written = partial.write_at(0, &[1; 4096]);
        assert!(written.is_err_and(|error| chain(&error).ends_with(FULL)));
    });
}

#[test]
fn what_is_proven_when_the_disk_is_full_stays_and_the_rest_comes_when_there_is_room() {
    let name = "what_is_proven_when_the_disk_is_full_stays_and_the_rest_comes_when_there_is_room";
    on_a_disk_of_its_own(name, |disk| {
        const BLOCK: u64 = 1 << 20;
        mount(&["-o", "remount,size=2m"], disk);
        let target = target(disk);
        let big = file("big", 3 * BLOCK);
        let content = |index: u32| vec![1 + index as u8; BLOCK as usize];
        let digest = |index: u32| digest::block(3 * BLOCK, BLOCK, index, &content(index));
        // Nothing is reserved of a file with holes.
        let partial = target.partial(&big, BLOCK, true).unwrap();
        let write =
            |partial: &Partial, index: u32| partial.write_at(u64::from(index) * BLOCK, &content(index));
        write(&partial, 0).unwrap();
        partial.note(0, digest(0)).unwrap();
        let full = write(&partial, 1).and_then(|()| write(&partial, 2));
        assert!(full.is_err_and(|error| chain(&error).ends_with(FULL)));
        partial.leave();
        drop(partial);
        mount(&["-o", "remount,size=8m"], disk);
        let partial = target.partial(&big, BLOCK, true).unwrap();
        assert_eq!(partial.proven(&mut |_| true).unwrap(), [(0, digest(0))]);
        for index in 1..3 {
            write(&partial, index).unwrap();
            partial.note(index, digest(index)).unwrap();
        }
        partial.finish(&big).unwrap();
        assert!(fs::read(disk.join("big")).unwrap() == (0..3).flat_map(content).collect::<Vec<_>>());
        assert_eq!(fs::read_dir(disk).unwrap().count(), 1);
        // Where nothing was noted, nothing stays.
        target.partial(&file("other", 3 * BLOCK), BLOCK, true).unwrap().leave();
        assert_eq!(fs::read_dir(disk).unwrap().count(), 1);
    });
}

#[test]
fn a_disk_that_may_not_be_written_is_told() {
    on_a_disk_of_its_own("a_disk_that_may_not_be_written_is_told", |disk| {
        fs::create_dir(disk.join("there")).unwrap();
        mount(&["-o", "remount,bind,ro"], disk);
        let said = |error: &TargetError| {
            let said = chain(error);
            assert!(said.ends_with(": Read-only file system (os error 30)"), "{said}");
        };
        let target = target(disk);
        said(&target.put(&file("x", 1), b"x").unwrap_err());
        said(&target.partial(&file("there/x", 1 << 20), 1 << 20, false).unwrap_err());
        said(&target.directory(&entry("d", Kind::Directory)).unwrap_err());
        said(&target.symlink(&entry("l", Kind::Symlink { target: b"x".to_vec() })).unwrap_err());
        said(&target.put(&file("new/x", 1), b"x").unwrap_err());
        // A directory that is there is there, only its time cannot be set.
        target.directory(&entry("there", Kind::Directory)).unwrap();
        said(&target.finish_directories().remove(0).2);
    });
}

fn target(disk: &Path) -> Target {
    let containment = Arc::new(Directory::open(disk.parent().unwrap()).unwrap());
    let destination = Destination { path: b"disk".to_vec(), several: true, above: Vec::new() };
    Target::open(&containment, &destination, [1; 16], TargetOptions::default()).unwrap()
}

fn entry(path: &str, kind: Kind) -> Entry {
    let metadata = Metadata { mode: 0o600, mtime_s: 1, mtime_ns: 1 };
    Entry { path: RelativePath::new(path).unwrap(), kind, metadata }
}

fn file(path: &str, size: u64) -> Entry {
    entry(path, Kind::File { size })
}

/// Runs the test `name` once more in a process with a mount namespace of its own, and there `within` with a disk of 1 MiB.
fn on_a_disk_of_its_own(name: &str, within: impl Fn(&Path)) {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let disk = PathBuf::from(directory).join("disk");
        fs::create_dir(&disk).unwrap();
        mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &disk);
        return within(&disk);
    }
    let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    // Root of a user namespace may mount where root of the host may.
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(DIRECTORY, &directory)
        .output()
        .unwrap();
    let _ = fs::remove_dir_all(&directory);
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

fn mount(options: &[&str], at: &Path) {
    assert!(Command::new("mount").args(options).arg(at).status().unwrap().success());
}

/// Set in the process that has the disk: where to mount it.
const DIRECTORY: &str = "FARLINK_TEST_DISK";

const FULL: &str = ": No space left on device (os error 28)";
