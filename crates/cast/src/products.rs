//! What a session sends: files as streams of bytes, read when their turn comes.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blake3::Hasher;
use farlink_host::beneath::{Directory, status_of};
use farlink_host::sparse;
use farlink_host::watch::Watcher;
use farlink_mover::chain;
use farlink_mover::copy::filter::Filter;
use farlink_mover::copy::source::{Found, Handle, LATER, SourceFile, SourcePath, Standing, Walk};
use farlink_wire::cast::{Announcement, Part, Shape};
use farlink_wire::entry::{Digest, Kind, Metadata};
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Nanos;

use crate::stopwatch::Stopwatch;

mod open_files;

use open_files::OpenFiles;

/// Files, in the order in which they were named and found.
pub(crate) struct Products<'f> {
    piped: Option<&'f Piped>,
    walk: Walk<'f>,
    feed: Option<Feed<'f>>,
    /// From product `first` on: those before it were forgotten.
    known: VecDeque<Product>,
    first: u32,
    bytes: u64,
    open: OpenFiles<SourceFile>,
    reading: Stopwatch,
}

/// A directory whose files are sent as they appear.
struct Feed<'f> {
    /// None where nothing more is to appear.
    watcher: Option<Watcher>,
    standing: Standing<'f>,
    appeared: VecDeque<PathBuf>,
}

/// What the next thing is that was found.
enum Step {
    Product(Box<Product>),
    NotSent(NotSent),
    /// It needs no word.
    Passed,
}

struct Product {
    head: Vec<u8>,
    shape: Shape,
    source: Source,
    path: String,
    /// Of the first so many bytes of its content, until the digest is known.
    hasher: Option<Box<Hasher>>,
    hashed: u64,
    digest: Digest,
}

#[derive(Clone, Debug)]
enum Source {
    Found(Handle),
    Piped(Arc<File>),
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
        let metadata = Metadata { mode: 0o644, mtime_s: status.mtime_s, mtime_ns: status.mtime_ns };
        let source = Source::Piped(Arc::clone(&self.file));
        Ok(Product::new(self.path.clone(), metadata, status.size, source))
    }
}

impl Product {
    /// `None` where it is too large.
    fn new(path: RelativePath, metadata: Metadata, size: u64, source: Source) -> Option<Self> {
        let shown = path.to_string();
        let head = Announcement { path, metadata }.encode();
        let shape = Shape::new(head.len(), size)?;
        let hasher = Some(Box::default());
        Some(Self { head, shape, source, path: shown, hasher, hashed: 0, digest: Digest::default() })
    }

    /// Whether content is still to be read for its digest alone.
    const fn lacks_digest(&self) -> bool {
        self.hasher.is_some() && self.hashed < self.shape.content()
    }

    /// Reads some more of it for that.
    fn hash_more(
        &mut self,
        number: u32,
        open: &mut OpenFiles<SourceFile>,
        reading: &mut Stopwatch,
    ) -> Result<(), String> {
        let mut rest = vec![0; (self.shape.content() - self.hashed).min(READ) as usize];
        reading.time(|| read_content(open, (number, &self.source), self.hashed, &mut rest))?;
        self.hash(self.hashed, &rest);
        Ok(())
    }

    /// These bytes of the content stand at `at`.
    fn hash(&mut self, at: u64, bytes: &[u8]) {
        let Some(hasher) = &mut self.hasher else { return };
        if let Some(new) = self.hashed.checked_sub(at).and_then(|known| bytes.get(known as usize..)) {
            hasher.update(new);
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
    /// Of what was `piped`, and `sources`, which are paths beneath `root`.
    pub(crate) fn new(
        root: &Arc<Directory>,
        piped: Option<&'f Piped>,
        sources: &[SourcePath],
        filter: &'f Filter,
    ) -> Self {
        let sources: Vec<_> = sources.iter().map(|source| (Arc::clone(root), source.clone())).collect();
        let walk = Walk::new(&sources, filter);
        Self {
            piped,
            walk,
            feed: None,
            known: VecDeque::new(),
            first: 0,
            bytes: 0,
            open: OpenFiles::new(MOST_OPEN),
            reading: Stopwatch::default(),
        }
    }

    /// Adds what appears in the directory `source` from now on.
    ///
    /// # Errors
    /// Why it cannot be watched.
    pub(crate) fn watch(
        &mut self,
        root: &Arc<Directory>,
        source: &SourcePath,
        filter: &'f Filter,
    ) -> Result<(), String> {
        let standing = Standing::new(root, source, filter).map_err(|error| chain(&error))?;
        let watcher = Watcher::new(&source.to_path()).map_err(|error| error.to_string())?;
        self.feed = Some(Feed { watcher: Some(watcher), standing, appeared: VecDeque::new() });
        Ok(())
    }

    /// What becomes readable when something appears.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.feed.as_ref()?.watcher.as_ref().map(Watcher::as_fd)
    }

    /// Something has appeared.
    pub(crate) fn notice(&mut self, tell: &mut dyn FnMut(NotSent)) {
        let Some(feed) = &mut self.feed else { return };
        let Some(watcher) = &mut feed.watcher else { return };
        let failed = |path: &Path, reason| NotSent { path: path.display().to_string(), reason, failed: true };
        match watcher.read() {
            Ok(appeared) => {
                feed.appeared.extend(appeared.files);
                for (path, reason) in appeared.missed {
                    tell(failed(&path, reason));
                }
                if appeared.is_over {
                    self.cease();
                }
            }
            Err(error) => {
                tell(failed(Path::new("the directory that is watched"), error.to_string()));
                self.cease();
            }
        }
    }

    /// Nothing more is to appear: what has is sent.
    pub(crate) fn cease(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.watcher = None;
        }
    }

    /// Whether nothing more is to appear.
    pub(crate) fn has_ceased(&self) -> bool {
        self.feed.as_ref().is_none_or(|feed| feed.watcher.is_none() && feed.appeared.is_empty())
    }

    /// The stream of the next file; `None` where there is none now. What is not sent is told.
    pub(crate) fn next(&mut self, tell: &mut dyn FnMut(NotSent)) -> Option<Shape> {
        if let Some(piped) = self.piped.take() {
            match piped.product() {
                Ok(Some(product)) => return Some(self.add(product)),
                Ok(None) => tell(NotSent::too_large(piped.path.to_string())),
                Err(error) => {
                    tell(NotSent { path: piped.path.to_string(), reason: error.to_string(), failed: true });
                }
            }
        }
        loop {
            match self.found()? {
                Step::Product(product) => return Some(self.add(*product)),
                Step::NotSent(not_sent) => tell(not_sent),
                Step::Passed => {}
            }
        }
    }

    /// The next thing that was found, where there is one.
    fn found(&mut self) -> Option<Step> {
        let found = match (self.walk.next(), &mut self.feed) {
            (Some(found), _) => found,
            (None, Some(feed)) => {
                let Some(found) = feed.standing.look(&feed.appeared.pop_front()?) else {
                    return Some(Step::Passed);
                };
                found
            }
            (None, None) => return None,
        };
        let (entry, handle) = match found {
            Found::Entry(entry, handle) => (entry, handle),
            Found::Skipped { path, what } => {
                let skipped = NotSent { path: path.to_string(), reason: what.to_string(), failed: false };
                return Some(Step::NotSent(skipped));
            }
            Found::Later(path) => {
                let later = NotSent { path: path.to_string(), reason: LATER.to_owned(), failed: false };
                return Some(Step::NotSent(later));
            }
            Found::Failed { path, error } => {
                let failed = NotSent { path: path.to_string(), reason: chain(&error), failed: true };
                return Some(Step::NotSent(failed));
            }
        };
        let path = entry.path.to_string();
        Some(match entry.kind {
            Kind::Directory => Step::Passed,
            Kind::Symlink { .. } => {
                Step::NotSent(NotSent { path, reason: "a symbolic link".to_owned(), failed: false })
            }
            Kind::File { size } => {
                match Product::new(entry.path, entry.metadata, size, Source::Found(handle)) {
                    Some(product) => Step::Product(Box::new(product)),
                    None => Step::NotSent(NotSent::too_large(path)),
                }
            }
        })
    }

    fn add(&mut self, product: Product) -> Shape {
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

    /// Nobody can ask any more for products before this one.
    pub(crate) fn forget_before(&mut self, product: u32) {
        while self.first < product && self.known.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Reads `range` of a product's stream into `out`, which is as long. Ranges that come in order, as in a first pass, make the digest; where
    /// it is asked for before they did, the rest is read for it.
    ///
    /// # Errors
    /// Why the product cannot be sent.
    pub(crate) fn read(&mut self, number: u32, range: Range<u64>, out: &mut [u8]) -> Result<(), String> {
        let place = number.checked_sub(self.first);
        let Some(product) = place.and_then(|place| self.known.get_mut(place as usize)) else {
            return Err("no such product".to_owned());
        };
        for (part, within) in product.shape.parts(range) {
            let out = &mut out[within];
            match part {
                Part::Head(at) => out.copy_from_slice(&product.head[at..at + out.len()]),
                Part::Content(at) => {
                    self.reading.time(|| read_content(&mut self.open, (number, &product.source), at, out))?;
                    product.hash(at, out);
                }
                Part::Digest(at) => {
                    while product.lacks_digest() {
                        product.hash_more(number, &mut self.open, &mut self.reading)?;
                    }
                    if let Some(hasher) = product.hasher.take() {
                        product.digest = Digest(*hasher.finalize().as_bytes());
                    }
                    out.copy_from_slice(&product.digest.0[at..at + out.len()]);
                }
            }
        }
        Ok(())
    }

    /// Whether `range` of a product's stream can be read without reading much else: otherwise a part of what its digest needs is read,
    /// and it is to be asked again.
    ///
    /// # Errors
    /// Why the product cannot be sent.
    pub(crate) fn prepare(&mut self, number: u32, range: Range<u64>) -> Result<bool, String> {
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
    }
}

/// Reads content of a product from `at` on.
fn read_content(
    open: &mut OpenFiles<SourceFile>,
    (number, source): (u32, &Source),
    at: u64,
    out: &mut [u8],
) -> Result<(), String> {
    let read = match source {
        Source::Found(handle) => {
            let file = open.get(number, || handle.open().map_err(|error| chain(&error)))?;
            file.read_at(at, out).map_err(|error| chain(&error))?
        }
        Source::Piped(file) => sparse::read_at(file, at, out).map_err(|error| error.to_string())?,
    };
    if read < out.len() { Err("it became shorter while it was sent".to_owned()) } else { Ok(()) }
}

/// Files that are open at a time.
const MOST_OPEN: usize = 64;

/// Bytes that are read at a time for a digest alone.
const READ: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_of_the_whole_file_however_much_of_it_was_read_before() {
        let content: Vec<u8> = (0..3 * READ as u32 / 2).map(|at| (at ^ (at >> 9)) as u8).collect();
        let path = std::env::temp_dir().join(format!("products-digest-{}", std::process::id()));
        std::fs::write(&path, &content).unwrap();
        let (root, filter) = (Arc::new(Directory::open(Path::new("/")).unwrap()), Filter::default());
        let source = SourcePath::new(path.to_str().unwrap()).unwrap();
        // All of it in order; none; what was broken off and begun again; what comes with holes.
        let [all, half] = [content.len() as u64, content.len() as u64 / 2];
        for read in [
            vec![(0, all)],
            vec![],
            vec![(0, half), (0, half + 9), (half, all - 1)],
            vec![(5, 9), (0, 7), (8, half)],
        ] {
            let mut products = Products::new(&root, None, std::slice::from_ref(&source), &filter);
            let shape = products.next(&mut |not| panic!("{not:?}")).unwrap();
            let head = u64::from(shape.head());
            for (from, end) in read {
                let mut out = vec![0; (end - from) as usize];
                products.read(0, head + from..head + end, &mut out).unwrap();
                assert_eq!(out, content[from as usize..end as usize]);
            }
            // A step at a time, so that nothing else waits for it.
            assert!(products.prepare(0, head..head + 1).unwrap(), "content needs no digest");
            let before = products.known[0].hashed;
            while !products.prepare(0, head + all..shape.stream()).unwrap() {
                assert_eq!((products.known[0].hashed - before) % READ, 0);
            }
            let mut digest = [0; Digest::LEN];
            products.read(0, head + all..shape.stream(), &mut digest).unwrap();
            assert_eq!(Digest(digest), farlink_flow::digest::whole(&content));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
