//! What a session sends: files as streams of bytes, read when their turn comes.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farlink_flow::digest::Gathering;
use farlink_host::beneath::{Directory, Status, status_of};
use farlink_mover::chain;
use farlink_mover::copy::filter::Filter;
use farlink_mover::copy::source::{Found, SourcePath, Walk};
use farlink_wire::cast::control::Whole;
use farlink_wire::cast::{Announcement, Part, Shape};
use farlink_wire::entry::{Digest, Kind, Metadata};
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Nanos;

use crate::name::{Name, name};
use crate::stopwatch::Stopwatch;

mod feed;
mod names;
mod open_files;
mod place;
mod source;

use feed::{Feed, Seen};
use names::Names;
use open_files::OpenFiles;
pub(crate) use source::Unread;
use source::{Opened, Source};

/// Files, in the order in which they were named and found.
pub(crate) struct Products<'f> {
    piped: Option<&'f Piped>,
    walk: Walk<'f>,
    feed: Option<Feed>,
    /// From product `first` on: those before it were forgotten.
    known: VecDeque<Product>,
    first: u32,
    names: Names,
    bytes: u64,
    open: OpenFiles<Opened>,
    reading: Stopwatch,
}

/// What the next thing is that was found.
enum Step {
    /// And its file, where that is open already.
    Product(Box<Product>, Option<Opened>),
    /// It is named, as what is beneath it has no names here, and lost at once: so receivers hear that something lacks.
    Lacking(Box<Product>),
    NotSent(NotSent),
    /// It needs no word.
    Passed,
}

struct Product {
    head: Vec<u8>,
    shape: Shape,
    source: Source,
    path: String,
    name: Name,
    /// Of the first so many bytes of its content, until the digest is known.
    hasher: Option<Box<Gathering>>,
    hashed: u64,
    digest: Option<Digest>,
    /// Whether it cannot be sent any more.
    is_lost: bool,
    /// And whether that is nobody's loss, as a later one has its name.
    is_superseded: bool,
}

/// What came through a pipe, and is sent first.
#[derive(Clone, Debug)]
pub struct Piped {
    /// The name that it is to have.
    pub path: RelativePath,
    /// All of it.
    pub file: Arc<File>,
}

impl Piped {
    fn product(&self) -> io::Result<Option<Product>> {
        let status = status_of(&self.file)?;
        let source = Source::Piped(Arc::clone(&self.file));
        let metadata = Metadata { mode: 0o644, ..metadata(&status) };
        Ok(Product::new(self.path.clone(), metadata, status.size, source))
    }
}

impl Product {
    /// `None` where it is too large.
    fn new(path: RelativePath, metadata: Metadata, size: u64, source: Source) -> Option<Self> {
        let (shown, name) = (path.to_string(), name(&path));
        let head = Announcement { path, metadata }.encode();
        let shape = Shape::new(head.len(), size)?;
        let (hasher, digest) = (None, None);
        let (is_lost, is_superseded) = (false, false);
        Some(Self {
            head,
            shape,
            source,
            path: shown,
            name,
            hasher,
            hashed: 0,
            digest,
            is_lost,
            is_superseded,
        })
    }

    /// Whether content is still to be read for its digest alone.
    const fn lacks_digest(&self) -> bool {
        self.digest.is_none() && self.hashed < self.shape.content()
    }

    /// Reads some more of it for that.
    fn hash_more(
        &mut self,
        number: u32,
        open: &mut OpenFiles<Opened>,
        reading: &mut Stopwatch,
    ) -> Result<(), Unread> {
        let mut rest = vec![0; (self.shape.content() - self.hashed).min(READ) as usize];
        reading.time(|| self.source.read(number, open, self.hashed, &mut rest))?;
        self.hash(self.hashed, &rest);
        Ok(())
    }

    /// These bytes of the content stand at `at`.
    fn hash(&mut self, at: u64, bytes: &[u8]) {
        if self.digest.is_some() {
            return;
        }
        if let Some(new) = self.hashed.checked_sub(at).and_then(|known| bytes.get(known as usize..)) {
            self.hasher.get_or_insert_default().update(new);
            self.hashed += new.len() as u64;
        }
    }
}

/// What a walk came upon that is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSent {
    /// Its name.
    pub path: String,
    /// Why.
    pub reason: String,
    /// Whether it should have been: it could not be read.
    pub failed: bool,
}

impl NotSent {
    fn too_large(path: String) -> Self {
        Self { path, reason: "it has more than 128 TiB".to_owned(), failed: true }
    }
}

impl<'f> Products<'f> {
    /// Of what was `piped`, and `sources`, which are paths beneath `root`, with so many files open at a time.
    pub(crate) fn new(
        root: &Arc<Directory>,
        piped: Option<&'f Piped>,
        sources: &[SourcePath],
        filter: &'f Filter,
        most_open: usize,
    ) -> Self {
        let sources: Vec<_> = sources.iter().map(|source| (Arc::clone(root), source.clone())).collect();
        let walk = Walk::new(&sources, filter);
        Self {
            piped,
            walk,
            feed: None,
            known: VecDeque::new(),
            first: 0,
            names: Names::default(),
            bytes: 0,
            open: OpenFiles::new(most_open),
            reading: Stopwatch::default(),
        }
    }

    /// Adds what appears in the directory `source` from now on.
    ///
    /// # Errors
    /// Why it cannot be watched.
    pub(crate) fn watch(&mut self, source: &SourcePath) -> Result<(), String> {
        self.feed = Some(Feed::new(source)?);
        Ok(())
    }

    /// What becomes readable when something appears.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.feed.as_ref()?.watched()
    }

    /// Something has appeared.
    pub(crate) fn notice(&mut self, tell: &mut dyn FnMut(NotSent)) {
        if let Some(feed) = &mut self.feed {
            feed.notice(tell);
        }
    }

    /// Looks whether the directory that is watched is there still.
    pub(crate) fn look_whether_there(&mut self, tell: &mut dyn FnMut(NotSent)) {
        if let Some(feed) = &mut self.feed
            && let Some(Seen::NotSent(gone)) = feed.look_after()
        {
            tell(gone);
        }
    }

    /// How many files are found in what is left of the walk, `most` of them, of which then none is sent.
    pub(crate) fn unwalked(&mut self, most: usize) -> usize {
        let is_file = |found: &Found| matches!(found, Found::Entry(entry, _) if matches!(entry.kind, Kind::File { .. }));
        self.walk.by_ref().filter(is_file).take(most).count()
    }

    /// Nothing more is to appear: what has is sent.
    pub(crate) fn cease(&mut self, tell: &mut dyn FnMut(NotSent)) {
        if let Some(feed) = &mut self.feed {
            feed.cease(tell);
        }
    }

    /// How much of what has appeared was not looked at.
    pub(crate) fn waiting(&self) -> usize {
        self.feed.as_ref().map_or(0, Feed::waiting)
    }

    /// Whether nothing more is to appear, and everything that has was looked at.
    pub(crate) fn has_ceased(&self) -> bool {
        self.feed.as_ref().is_none_or(Feed::has_ceased)
    }

    /// Whether there is anything to send of what was named; if not, why, of each name that was found.
    pub(crate) fn nothing(mut self) -> Option<Vec<NotSent>> {
        let mut lacking = Vec::new();
        if self.piped.is_some() {
            return None;
        }
        while let Some(step) = self.found() {
            match step {
                Step::NotSent(not_sent) => lacking.push(not_sent),
                Step::Passed => {}
                Step::Product(..) | Step::Lacking(_) => return None,
            }
        }
        Some(lacking)
    }

    /// The stream of the next file; `None` where there is none now. What is not sent is told.
    pub(crate) fn next(&mut self, tell: &mut dyn FnMut(NotSent)) -> Option<Shape> {
        if let Some(piped) = self.piped.take() {
            match piped.product() {
                Ok(Some(product)) => return Some(self.add(product, None)),
                Ok(None) => tell(NotSent::too_large(piped.path.to_string())),
                Err(error) => {
                    tell(NotSent { path: piped.path.to_string(), reason: error.to_string(), failed: true });
                }
            }
        }
        loop {
            match self.found()? {
                Step::Product(product, open) => return Some(self.add(*product, open)),
                Step::Lacking(product) => return Some(self.push(*product)),
                Step::NotSent(not_sent) => tell(not_sent),
                Step::Passed => {}
            }
        }
    }

    /// The next thing that was found, where there is one.
    fn found(&mut self) -> Option<Step> {
        let Some(found) = self.walk.next() else {
            return Some(self.feed.as_mut()?.next()?.into());
        };
        let not_sent = |path: RelativePath, reason: String, failed| {
            Step::NotSent(NotSent { path: path.to_string(), reason, failed })
        };
        let (entry, handle) = match found {
            Found::Entry(entry, handle) => (entry, handle),
            Found::Skipped { path, what } => return Some(not_sent(path, what.to_string(), false)),
            Found::LeftOut { path, why } => return Some(not_sent(path, why.to_string(), false)),
            Found::Failed { path, error, .. } => return Some(Step::lacking(path, chain(&error))),
        };
        Some(match entry.kind {
            Kind::Directory => Step::Passed,
            Kind::Symlink { .. } => not_sent(entry.path, "a symbolic link".to_owned(), false),
            Kind::File { size } => {
                Step::product(entry.path, entry.metadata, size, Source::Found(handle), None)
            }
        })
    }

    fn add(&mut self, product: Product, open: Option<Opened>) -> Shape {
        if let Some(file) = open {
            self.open.keep(self.count(), file);
        }
        self.names.insert(product.name, self.count());
        self.push(product)
    }

    fn push(&mut self, product: Product) -> Shape {
        let shape = product.shape;
        self.bytes += shape.content();
        self.known.push_back(product);
        shape
    }

    /// Products so far.
    pub(crate) fn count(&self) -> u32 {
        self.first + self.known.len() as u32
    }

    /// Bytes of their content.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The name of a product.
    pub(crate) fn path(&self, product: u32) -> &str {
        let place = product.checked_sub(self.first);
        place.and_then(|place| self.known.get(place as usize)).map_or("", |product| &product.path)
    }

    /// What a product is that can be sent, as far as is known, and of which all was read.
    pub(crate) fn whole(&self, product: u32) -> Option<Whole> {
        let place = product.checked_sub(self.first)?;
        let known = self.known.get(place as usize).filter(|known| !known.is_lost)?;
        let announcement = Announcement::decode(&known.head).ok()?;
        Some(Whole { announcement, content: known.shape.content(), digest: known.digest? })
    }

    /// A product cannot be sent any more: its name, and bytes of its content, the first time.
    pub(crate) fn lose(&mut self, product: u32) -> Option<(String, u64)> {
        self.open.close(product);
        let lost = self.known_mut(product).filter(|product| !product.is_lost)?;
        lost.is_lost = true;
        // A feed may know a million.
        lost.hasher = None;
        let (path, name, is_superseded) = (lost.path.clone(), lost.name, lost.is_superseded);
        let content = lost.shape.content();
        // One that was superseded itself has a later one.
        if !is_superseded {
            self.names.remove(name, product);
        }
        Some((path, content))
    }

    /// Whether a later product has the name of one that cannot be sent, or will have it: the newest is what counts.
    pub(crate) fn supersede(&mut self, product: u32) -> bool {
        let Some(place) = product.checked_sub(self.first).map(|place| place as usize) else { return false };
        let Some(lost) = self.known.get(place) else { return false };
        if !lost.is_lost {
            let mut is_waiting = || match (&lost.source, &mut self.feed) {
                (Source::Appeared(place, then), Some(feed)) => feed.replaces(place, then),
                (Source::Found(handle), Some(feed)) => feed.replaces_named(handle.path(), handle.status()),
                _ => false,
            };
            let is_superseded = self.names.has_later(lost.name, product) || is_waiting();
            self.known[place].is_superseded = is_superseded;
        }
        self.known[place].is_superseded
    }

    /// Closes the files that are open, for now: this process may have no more of them.
    pub(crate) fn close_all(&mut self) {
        self.open.close_all();
    }

    /// Nobody can ask any more for products before this one.
    pub(crate) fn forget_before(&mut self, product: u32) {
        while self.first < product
            && let Some(forgotten) = self.known.pop_front()
        {
            self.names.remove(forgotten.name, self.first);
            self.first += 1;
        }
    }

    fn known_mut(&mut self, product: u32) -> Option<&mut Product> {
        self.known.get_mut(product.checked_sub(self.first)? as usize)
    }

    /// Reads `range` of a product's stream into `out`, which is as long. Ranges that come in order, as in a first pass, make the digest; where
    /// it is asked for before they did, the rest is read for it. It is told only of a file that was not changed meanwhile.
    ///
    /// # Errors
    /// Why the product cannot be sent, or not now.
    pub(crate) fn read(&mut self, number: u32, range: Range<u64>, out: &mut [u8]) -> Result<(), Unread> {
        let place = number.checked_sub(self.first);
        let Some(product) = place.and_then(|place| self.known.get_mut(place as usize)) else {
            return Err(Unread::Lost("no such product".to_owned()));
        };
        if product.is_lost {
            return Err(Unread::Lost("it cannot be sent any more".to_owned()));
        }
        for (part, within) in product.shape.parts(range) {
            let out = &mut out[within];
            match part {
                Part::Head(at) => out.copy_from_slice(&product.head[at..at + out.len()]),
                Part::Content(at) => {
                    self.reading.time(|| product.source.read(number, &mut self.open, at, out))?;
                    if product.digest.is_none() {
                        product.hash(at, out);
                        // What is not what it was any more is not to be sent to its end.
                        if at / CHECK_EVERY != (at + out.len() as u64) / CHECK_EVERY {
                            product.source.check(number, &mut self.open)?;
                        }
                    } else {
                        // Its digest was told: other content does not fit that.
                        product.source.check(number, &mut self.open)?;
                    }
                }
                Part::Digest(at) => {
                    while product.lacks_digest() {
                        product.hash_more(number, &mut self.open, &mut self.reading)?;
                    }
                    let digest = match product.digest {
                        Some(digest) => digest,
                        None => {
                            product.source.check(number, &mut self.open)?;
                            if product.shape.content() == 0 {
                                product.source.check_empty(number, &mut self.open)?;
                            }
                            let digest = product.hasher.take().unwrap_or_default().digest();
                            *product.digest.insert(digest)
                        }
                    };
                    out.copy_from_slice(&digest.0[at..at + out.len()]);
                }
            }
        }
        Ok(())
    }

    /// Whether `range` of a product's stream can be read without reading much else: otherwise a part of what its digest needs is read,
    /// and it is to be asked again.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn prepare(&mut self, number: u32, range: Range<u64>) -> Result<bool, Unread> {
        let place = number.checked_sub(self.first);
        let product = place.and_then(|place| self.known.get_mut(place as usize));
        let Some(product) = product.filter(|product| product.lacks_digest()) else { return Ok(true) };
        if !product.shape.parts(range).into_iter().any(|(part, _)| matches!(part, Part::Digest(_))) {
            return Ok(true);
        }
        product.hash_more(number, &mut self.open, &mut self.reading)?;
        Ok(!product.lacks_digest())
    }

    /// How long reading took so far.
    pub(crate) const fn read_for(&self) -> Nanos {
        self.reading.total()
    }

    /// A product is needed no longer, unless somebody catches up.
    pub(crate) fn release(&mut self, product: u32) {
        self.open.close(product);
        // Nobody may have wanted its end: a feed may know a million.
        if let Some(product) = self.known_mut(product).filter(|product| product.digest.is_none()) {
            (product.hasher, product.hashed) = (None, 0);
        }
    }
}

impl Step {
    fn product(
        path: RelativePath,
        metadata: Metadata,
        size: u64,
        source: Source,
        open: Option<Opened>,
    ) -> Self {
        let shown = path.to_string();
        match Product::new(path, metadata, size, source) {
            Some(product) => Self::Product(Box::new(product), open),
            None => Self::NotSent(NotSent::too_large(shown)),
        }
    }

    /// What a walk cannot look at; several may have one name. Of one without a name receivers do not hear.
    fn lacking(path: RelativePath, reason: String) -> Self {
        let shown = path.to_string();
        match Product::new(path, NO_METADATA, 0, Source::Nothing(reason.clone())) {
            Some(product) => Self::Lacking(Box::new(product)),
            None => Self::NotSent(NotSent { path: shown, reason, failed: true }),
        }
    }
}

impl From<Seen> for Step {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::File { name, place, file, status } => {
                let source = Source::Appeared(place, status);
                let open = Some(Opened::Appeared(file, status));
                Self::product(name, metadata(&status), status.size, source, open)
            }
            Seen::Lacking { name, reason } => {
                Self::product(name, NO_METADATA, 0, Source::Nothing(reason), None)
            }
            Seen::NotSent(not_sent) => Self::NotSent(not_sent),
            Seen::Nothing => Self::Passed,
        }
    }
}

/// Bytes of a file after which it is looked at whether it was changed.
const CHECK_EVERY: u64 = 4 << 20;

/// As a walk has it, too: what belongs to somebody else is to run as nobody where it is sent to.
fn metadata(status: &Status) -> Metadata {
    Metadata { mode: status.mode_of_a_copy(), mtime_s: status.mtime_s, mtime_ns: status.mtime_ns }
}

/// Of what is no file.
const NO_METADATA: Metadata = Metadata { mode: 0, mtime_s: 0, mtime_ns: 0 };

/// Bytes that are read at a time for a digest alone.
const READ: u64 = 256 * 1024;

#[cfg(test)]
mod tests;
