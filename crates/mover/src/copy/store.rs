//! Where the blocks of a file go: to a partial file, to nothing, or nowhere as long as the file that is there is the same.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use farlink_host::sparse;
use farlink_wire::entry::{Digest, Entry};

use super::target::{Held, Partial, Target, TargetError};

/// Where the blocks of a file go.
#[derive(Debug)]
pub enum Store {
    /// A file that gets its name when it is whole.
    Partial(Box<Partial>),
    /// The file that has the name already; a partial file with its content takes its place as soon as a block differs.
    Held(Box<Standing>),
    /// A device that keeps nothing.
    Sink(File),
}

/// A file that stands there already, until something of it differs.
#[derive(Debug)]
pub struct Standing {
    held: Held,
    entry: Entry,
    block_bytes: u64,
    sparse: bool,
    /// What its blocks were when they were compared, but for those in `holes`.
    compared: OnceLock<Box<[(u32, Digest)]>>,
    /// Runs of blocks that are not read: there is nothing in them, and very much of it.
    holes: OnceLock<Vec<(u32, u32)>>,
    instead: OnceLock<Partial>,
    /// Held while the partial file is made.
    making: Mutex<()>,
    /// Nobody waits any more for it to be made.
    stopped: AtomicBool,
    /// What stands there could not be read, or is another file: nothing of it is taken over.
    is_void: AtomicBool,
}

impl Store {
    /// For `held`, which may be the file that comes.
    #[must_use]
    pub fn standing(held: Held, entry: Entry, block_bytes: u64, sparse: bool) -> Self {
        Self::Held(Box::new(Standing {
            held,
            entry,
            block_bytes,
            sparse,
            compared: OnceLock::new(),
            holes: OnceLock::new(),
            instead: OnceLock::new(),
            making: Mutex::default(),
            stopped: AtomicBool::new(false),
            is_void: AtomicBool::new(false),
        }))
    }

    /// What stands there is another file than the one that comes: nothing of it is taken over.
    pub fn take_nothing_over(&self) {
        if let Self::Held(standing) = self {
            standing.is_void.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all or much of it must be read to know what is there already.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        match self {
            Self::Partial(partial) => partial.is_unproven(),
            Self::Held(_) => true,
            Self::Sink(_) => false,
        }
    }

    /// The blocks that are there already, with their digests. `progress` is told of bytes that were read, and says whether to go on.
    ///
    /// # Errors
    /// [`TargetError`], also where it does not go on.
    pub fn proven(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Vec<(u32, Digest)>, TargetError> {
        match self {
            Self::Partial(partial) => partial.proven(progress),
            Self::Held(standing) => standing.proven(progress),
            Self::Sink(_) => Ok(Vec::new()),
        }
    }

    /// Writes `bytes`, a part of one block, at `offset`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn write_at(&self, target: &Target, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.write_at(offset, bytes),
            Self::Held(standing) => standing.instead(target)?.write_at(offset, bytes),
            Self::Sink(device) => sparse::write_at(device, 0, bytes).map_err(TargetError::sink),
        }
    }

    /// The same, while somebody else writes the block, too.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn write_beside(&self, target: &Target, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.write_beside(offset, bytes),
            Self::Held(standing) => standing.instead(target)?.write_beside(offset, bytes),
            Self::Sink(_) => self.write_at(target, offset, bytes),
        }
    }

    /// Whether block `index`, as it is now, has `digest`. Where nothing is kept it has any.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn holds(&self, index: u32, digest: Digest) -> Result<bool, TargetError> {
        match self {
            Self::Partial(partial) => partial.holds(index, digest),
            Self::Held(standing) => {
                standing.instead.get().map_or(Ok(true), |partial| partial.holds(index, digest))
            }
            Self::Sink(_) => Ok(true),
        }
    }

    /// Makes sure that there is nothing in the `count` blocks from `first`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn leave_out(&self, target: &Target, first: u32, count: u32) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.leave_out(first, count),
            Self::Held(standing)
                if standing.instead.get().is_none() && standing.held.is_hole(first, count) =>
            {
                Ok(())
            }
            Self::Held(standing) => standing.instead(target)?.leave_out(first, count),
            Self::Sink(_) => Ok(()),
        }
    }

    /// Reads what was written at `offset` again, until `buffer` is full or the file ends; how much that was. Nothing, where nothing is kept.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TargetError> {
        match self {
            Self::Partial(partial) => partial.read_at(offset, buffer),
            Self::Held(standing) => {
                standing.instead.get().map_or(Ok(0), |partial| partial.read_at(offset, buffer))
            }
            Self::Sink(_) => Ok(0),
        }
    }

    /// Remembers that block `index` was written, and is what has `digest`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn note(&self, index: u32, digest: Digest) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.note(index, digest),
            Self::Held(standing) => {
                standing.instead.get().map_or(Ok(()), |partial| partial.note(index, digest))
            }
            Self::Sink(_) => Ok(()),
        }
    }

    /// Whether it is the file that has the name already, of which nothing differed.
    #[must_use]
    pub fn is_as_found(&self) -> bool {
        matches!(self, Self::Held(standing) if standing.instead.get().is_none())
    }

    /// Whether [`read_back`](Self::read_back) was asked for.
    #[must_use]
    pub fn reads_back(&self) -> bool {
        match self {
            Self::Partial(partial) => partial.reads_back(),
            Self::Held(standing) => standing.instead.get().is_some_and(|partial| partial.reads_back()),
            Self::Sink(_) => false,
        }
    }

    /// Reads from the disk again what was written, blocks with these digests: those that are something else.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn read_back(
        &self,
        digests: &[Digest],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<u32>, TargetError> {
        match self {
            Self::Partial(partial) => partial.read_back(digests, progress),
            Self::Held(standing) => {
                standing.instead.get().map_or(Ok(Vec::new()), |partial| partial.read_back(digests, progress))
            }
            Self::Sink(_) => Ok(Vec::new()),
        }
    }

    /// Gives the file, which is whole, its mode, its time and its name.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn finish(&self, target: &Target, entry: &Entry) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.finish(entry),
            Self::Held(standing) => match standing.instead.get() {
                Some(partial) => partial.finish(entry),
                // Another's file, say, whose time is another: one of our own takes its place.
                None => {
                    target.keep(&standing.held, entry).or_else(|error| match error {
                        // One of our own would have no better.
                        TargetError::Refused { .. } => Err(error),
                        _ => standing.read_back(standing.instead(target)?)?.finish(entry),
                    })
                }
            },
            Self::Sink(_) => Ok(()),
        }
    }

    /// Whoever copies the content of what stands there ends that: nothing is stored any more.
    pub fn stop(&self) {
        if let Self::Held(standing) = self {
            standing.stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Nothing more of it comes in this run. What was noted of it stays for the next one; where nothing was, nothing stays.
    pub fn leave(&self) {
        match self {
            Self::Partial(partial) => partial.leave(),
            Self::Held(standing) => {
                if let Some(partial) = standing.made() {
                    partial.leave();
                }
            }
            Self::Sink(_) => {}
        }
    }

    /// Removes what there is of the file, unless it stood there before.
    pub fn abandon(&self) {
        match self {
            Self::Partial(partial) => partial.abandon(),
            Self::Held(standing) => {
                if let Some(partial) = standing.made() {
                    partial.abandon();
                }
            }
            Self::Sink(_) => {}
        }
    }
}

impl Standing {
    /// The blocks that it has. A disk that fails where it stands has none of it: all of the file comes again, and is put elsewhere.
    fn proven(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Vec<(u32, Digest)>, TargetError> {
        let mut goes_on = true;
        let proven = self.held.proven(self.holes(), &mut |bytes| {
            goes_on = progress(bytes);
            goes_on
        });
        if proven.is_err() && goes_on {
            self.is_void.store(true, Ordering::Relaxed);
            return Ok(Vec::new());
        }
        let proven = proven?;
        let _ = self.compared.set(proven.as_slice().into());
        Ok(proven)
    }

    /// Of a source without holes all blocks come, and are to be known as they are.
    fn holes(&self) -> &[(u32, u32)] {
        self.holes.get_or_init(|| if self.sparse { self.held.vast_holes() } else { Vec::new() })
    }

    /// Reads `partial`, which has what was compared, from the disk again, where that was asked for.
    fn read_back<'a>(&self, partial: &'a Partial) -> Result<&'a Partial, TargetError> {
        if !partial.reads_back() {
            return Ok(partial);
        }
        let compared = self.compared.get().map_or(&[][..], |compared| compared);
        let blocks = compared.last().map_or(0, |(index, _)| *index as usize + 1);
        let mut digests = vec![Digest::default(); blocks];
        for &(index, digest) in compared {
            digests[index as usize] = digest;
        }
        let spoiled = partial.read_back(&digests, &mut |_| !self.stopped.load(Ordering::Relaxed))?;
        match spoiled.first() {
            None => Ok(partial),
            Some(index) => Err(TargetError::Disk { path: self.entry.path.to_string(), index: *index }),
        }
    }

    /// Whether block `index` is what was compared, if it was.
    fn is_as_compared(&self, index: u32, digest: Digest) -> bool {
        self.compared.get().is_none_or(|compared| {
            let place = compared.binary_search_by_key(&index, |(index, _)| *index);
            place.is_ok_and(|place| compared[place].1 == digest)
        })
    }

    /// The partial file that was made, if it was: none is from now on, and whoever is about it ends that.
    fn made(&self) -> Option<&Partial> {
        self.stopped.store(true, Ordering::Relaxed);
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.instead.get()
    }

    /// The partial file in place of what stands there, with its content: made when it is first needed.
    fn instead(&self, target: &Target) -> Result<&Partial, TargetError> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partial) = self.instead.get() {
            return Ok(partial);
        }
        if self.stopped.load(Ordering::Relaxed) {
            return Err(self.held.interrupted());
        }
        let partial = target.partial(&self.entry, self.block_bytes, self.sparse)?;
        if self.is_void.load(Ordering::Relaxed) {
            return Ok(self.instead.get_or_init(|| partial));
        }
        // A run that takes this one up finds in the journal what is in it from now on.
        let copied = self.held.blocks(
            self.holes(),
            &mut |offset, piece| {
                if self.stopped.load(Ordering::Relaxed) {
                    return Err(self.held.interrupted());
                }
                partial.write_at(offset, piece)
            },
            // Of blocks that are the same nobody looks again: they are to be what was compared.
            &mut |index, digest| {
                if self.is_as_compared(index, digest) {
                    partial.note(index, digest)
                } else {
                    Err(self.held.changed())
                }
            },
        );
        // It may have been given up behind the last piece.
        let given_up = self.stopped.load(Ordering::Relaxed).then(|| self.held.interrupted());
        if let Some(error) = copied.err().or(given_up) {
            partial.abandon();
            return Err(error);
        }
        Ok(self.instead.get_or_init(|| partial))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use farlink_flow::digest;

    use super::super::target::TargetOptions;
    use super::super::target::tests::{Scratch, file};
    use super::*;

    const BLOCK: u64 = 1 << 20;

    /// A file of three blocks that stands there and was compared.
    fn compared(scratch: &Scratch) -> (Target, Store) {
        let target = scratch.open("", true, TargetOptions::default()).unwrap();
        fs::write(scratch.0.join("big"), vec![7; BLOCK as usize * 3]).unwrap();
        let entry = file("big", BLOCK * 3);
        let store = Store::standing(target.held(&entry, BLOCK).unwrap(), entry, BLOCK, false);
        assert_eq!(store.proven(&mut |_| true).unwrap().len(), 3);
        (target, store)
    }

    #[test]
    fn what_stands_there_and_cannot_be_read_is_replaced() {
        let scratch = Scratch::new("unreadable");
        let target = scratch.open("", true, TargetOptions::default()).unwrap();
        let content: Vec<u8> = (0..BLOCK * 5 / 2).map(|at| (at / 4096 + at % 251) as u8).collect();
        let big = scratch.0.join("big");
        fs::write(&big, &content).unwrap();
        let entry = file("big", content.len() as u64);
        let store = Store::standing(target.held(&entry, BLOCK).unwrap(), entry.clone(), BLOCK, false);
        // It ends before its end: that is an error as one of the disk is.
        File::options().write(true).open(&big).unwrap().set_len(BLOCK + 5).unwrap();
        assert_eq!(store.proven(&mut |_| true).unwrap(), []);
        for (at, block) in (0..).zip(content.chunks(BLOCK as usize)) {
            store.write_at(&target, at * BLOCK, block).unwrap();
        }
        store.finish(&target, &entry).unwrap();
        assert!(fs::read(&big).unwrap() == content);
        assert_eq!(scratch.names(), ["big"]);
    }

    #[test]
    fn of_another_file_that_stands_there_nothing_is_taken_over() {
        let scratch = Scratch::new("another");
        let (target, store) = compared(&scratch);
        store.take_nothing_over();
        store.write_at(&target, BLOCK, &[1; BLOCK as usize]).unwrap();
        let Store::Held(standing) = &store else { panic!("it stands there") };
        let partial = standing.instead.get().unwrap();
        assert_eq!(partial.proven(&mut |_| true).unwrap(), []);
        store.abandon();
        assert_eq!(scratch.names(), ["big"]);
    }

    #[test]
    fn of_vast_holes_that_stand_there_nothing_is_read() {
        let scratch = Scratch::new("vast");
        let target = scratch.open("", true, TargetOptions::default()).unwrap();
        let size = 100_000 * BLOCK;
        let standing = File::create(scratch.0.join("big")).unwrap();
        standing.set_len(size).unwrap();
        sparse::write_at(&standing, size - 1, b"x").unwrap();
        let entry = file("big", size);
        let open =
            |sparse| Store::standing(target.held(&entry, BLOCK).unwrap(), entry.clone(), BLOCK, sparse);
        let store = open(true);
        let Store::Held(held) = &store else { panic!("it stands there") };
        // Of a source without holes it is to be known what is in them.
        let Store::Held(other) = open(false) else { panic!("it stands there") };
        assert_eq!((held.holes(), other.holes()), (&[(0, 99_999)][..], &[][..]));
        let proven = store.proven(&mut |_| true).unwrap();
        assert_eq!(proven.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [99_999]);
        // What comes for one has a file of its own, with what was compared and no more.
        store.leave_out(&target, 0, 99_999).unwrap();
        assert!(held.instead.get().is_none());
        store.write_at(&target, 7 * BLOCK, &[1; BLOCK as usize]).unwrap();
        store.leave_out(&target, 8, 1).unwrap();
        let read = |offset| {
            let mut byte = [9];
            assert_eq!(store.read_at(offset, &mut byte).unwrap(), 1);
            byte[0]
        };
        assert_eq!([7 * BLOCK, 8 * BLOCK, size - 1].map(read), [1, 0, b'x']);
        store.abandon();
    }

    #[test]
    fn what_changes_where_it_stands_after_it_was_compared_is_not_taken_over() {
        let scratch = Scratch::new("changing");
        let (target, store) = compared(&scratch);
        let big = scratch.0.join("big");
        sparse::write_at(&File::options().write(true).open(&big).unwrap(), BLOCK * 2, &[8]).unwrap();
        let error = store.write_at(&target, 0, &[9; 4096]).unwrap_err();
        assert!(error.to_string().contains("big"), "{error}");
        assert_eq!(scratch.names(), ["big"], "nothing is left of it");
    }

    #[test]
    fn what_stood_there_and_is_gone_when_it_is_to_be_kept_is_put_there_again() {
        let scratch = Scratch::new("gone");
        let big = scratch.0.join("big");
        let take_away: fn(&Path) = |big| fs::remove_file(big).unwrap();
        let put_another: fn(&Path) = |big| {
            fs::write(big.with_extension("new"), "another").unwrap();
            fs::rename(big.with_extension("new"), big).unwrap();
        };
        for change in [take_away, put_another] {
            let (target, store) = compared(&scratch);
            change(&big);
            store.finish(&target, &file("big", BLOCK * 3)).unwrap();
            assert!(fs::read(&big).unwrap() == vec![7; BLOCK as usize * 3]);
            assert_eq!(scratch.names(), ["big"]);
        }
    }

    #[test]
    fn what_is_put_there_again_is_read_from_the_disk_where_that_was_asked_for() {
        let scratch = Scratch::new("read-back");
        let (_, store) = compared(&scratch);
        let Store::Held(standing) = &store else { panic!("it stands there") };
        let options = TargetOptions { read_back: true, ..TargetOptions::default() };
        let target = scratch.open("", true, options).unwrap();
        let partial = standing.instead(&target).unwrap();
        assert!(standing.read_back(partial).is_ok());
        let name = scratch.names().into_iter().find(|name| name.ends_with(".part")).unwrap();
        let there = File::options().write(true).open(scratch.0.join(name)).unwrap();
        sparse::write_at(&there, BLOCK, &[8]).unwrap();
        let error = standing.read_back(partial).unwrap_err();
        assert!(matches!(error, TargetError::Disk { index: 1, .. }), "{error}");
    }

    #[test]
    fn two_names_of_one_file_stay_so() {
        let scratch = Scratch::new("two-names");
        let (target, store) = compared(&scratch);
        let (big, other) = (scratch.0.join("big"), scratch.0.join("other"));
        fs::hard_link(&big, &other).unwrap();
        let entry = file("other", BLOCK * 3);
        let second = Store::standing(target.held(&entry, BLOCK).unwrap(), entry.clone(), BLOCK, false);
        assert_eq!(second.proven(&mut |_| true).unwrap().len(), 3);
        store.finish(&target, &file("big", BLOCK * 3)).unwrap();
        second.finish(&target, &entry).unwrap();
        let node = |path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
        assert_eq!(node(&big), node(&other));
    }

    #[test]
    fn what_was_written_to_since_it_was_compared_is_not_kept() {
        let scratch = Scratch::new("written-to");
        let (target, store) = compared(&scratch);
        let file_there = File::options().write(true).open(scratch.0.join("big")).unwrap();
        sparse::write_at(&file_there, BLOCK, &[8]).unwrap();
        file_there.set_modified(std::time::UNIX_EPOCH).unwrap();
        let error = store.finish(&target, &file("big", BLOCK * 3)).unwrap_err();
        assert!(error.to_string().contains("big"), "{error}");
        assert_eq!(scratch.names(), ["big"], "nothing is left beside it");
    }

    #[test]
    fn nothing_is_made_in_place_of_a_file_that_was_given_up() {
        for give_up in [Store::abandon, Store::leave] {
            let scratch = Scratch::new("given-up");
            let (target, store) = compared(&scratch);
            give_up(&store);
            assert!(store.write_at(&target, 0, &[9; 4096]).is_err());
            assert_eq!(scratch.names(), ["big"]);
        }
    }

    #[test]
    fn a_file_that_is_given_up_while_what_stood_there_is_copied_is_not_waited_for() {
        let scratch = Scratch::new("given-up-midway");
        let (target, store) = compared(&scratch);
        let Store::Held(standing) = &store else { unreachable!("it stands there") };
        std::thread::scope(|scope| {
            // Whoever copies is about to begin.
            let making = standing.making.lock().unwrap();
            let writer = scope.spawn(|| store.write_at(&target, 0, &[9; 4096]));
            let giver = scope.spawn(|| store.abandon());
            while !standing.stopped.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            drop(making);
            giver.join().unwrap();
            assert!(writer.join().unwrap().is_err());
        });
        assert_eq!(scratch.names(), ["big"]);
    }

    #[test]
    fn a_run_that_takes_up_a_changed_file_finds_what_stood_there() {
        let scratch = Scratch::new("standing");
        let target = scratch.open("", true, TargetOptions::default()).unwrap();
        let content: Vec<u8> = (0..BLOCK * 7 / 2).map(|at| (at / 4096 + at % 251) as u8).collect();
        fs::write(scratch.0.join("big"), &content).unwrap();
        let entry = file("big", content.len() as u64);
        let store = Store::standing(target.held(&entry, BLOCK).unwrap(), entry.clone(), BLOCK, false);
        let was = store.proven(&mut |_| true).unwrap();
        assert_eq!(was.len(), 4);
        // Of a changed block a part has come, and the run ends.
        store.write_at(&target, BLOCK, &[1; 4096]).unwrap();
        drop(store);
        assert!(target.held(&entry, BLOCK).is_none());
        let partial = target.partial(&entry, BLOCK, false).unwrap();
        let mut found = partial.proven(&mut |_| true).unwrap();
        found.sort_by_key(|(index, _)| *index);
        assert_eq!(found, [was[0], was[2], was[3]]);
        assert_eq!(was[2].1, digest::block(content.len() as u64, BLOCK, 2, &content[2 << 20..3 << 20]));
        assert!(fs::read(scratch.0.join("big")).unwrap() == content, "what stands there stays as it is");
    }
}
