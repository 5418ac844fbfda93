//! What a session sends: files as streams of bytes, read when their turn comes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use blake3::Hasher;
use farlink_host::beneath::{Directory, status_of};
use farlink_host::sparse;
use farlink_mover::chain;
use farlink_mover::copy::filter::Filter;
use farlink_mover::copy::source::{Found, Handle, SourceFile, SourcePath, Walk};
use farlink_wire::cast::{Announcement, Part, Shape};
use farlink_wire::entry::{Digest, Kind, Metadata};
use farlink_wire::path::RelativePath;

/// Files, in the order in which they were named and found.
pub(crate) struct Products<'f> {
    piped: Option<&'f Piped>,
    walk: Walk<'f>,
    known: Vec<Product>,
    open: BTreeMap<u32, SourceFile>,
}

struct Product {
    head: Vec<u8>,
    shape: Shape,
    source: Source,
    path: String,
    /// Of its content, as far as the first pass has come, and then whole.
    hasher: Option<Box<Hasher>>,
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
        Some(Self { head, shape, source, path: shown, hasher, digest: Digest::default() })
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
        root: Arc<Directory>,
        piped: Option<&'f Piped>,
        sources: &[SourcePath],
        filter: &'f Filter,
    ) -> Self {
        Self { piped, walk: Walk::new(root, sources, filter), known: Vec::new(), open: BTreeMap::new() }
    }

    /// The stream of the next file; `None` where there is no other. What is not sent is told.
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
            let (entry, handle) = match self.walk.next()? {
                Found::Entry(entry, handle) => (entry, handle),
                Found::Skipped { path, what } => {
                    tell(NotSent { path: path.to_string(), reason: what.to_string(), failed: false });
                    continue;
                }
                Found::Failed { path, error } => {
                    tell(NotSent { path: path.to_string(), reason: chain(&error), failed: true });
                    continue;
                }
            };
            let path = entry.path.to_string();
            let size = match entry.kind {
                Kind::File { size } => size,
                Kind::Directory => continue,
                Kind::Symlink { .. } => {
                    tell(NotSent { path, reason: "a symbolic link".to_owned(), failed: false });
                    continue;
                }
            };
            match Product::new(entry.path, entry.metadata, size, Source::Found(handle)) {
                Some(product) => return Some(self.add(product)),
                None => tell(NotSent::too_large(path)),
            }
        }
    }

    fn add(&mut self, product: Product) -> Shape {
        let shape = product.shape;
        self.known.push(product);
        shape
    }

    /// Products so far.
    pub(crate) fn count(&self) -> u32 {
        self.known.len() as u32
    }

    /// Bytes of their content.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.iter().map(|product| product.shape.content()).sum()
    }

    /// The name of a product.
    pub(crate) fn path(&self, product: u32) -> &str {
        self.known.get(product as usize).map_or("", |product| &product.path)
    }

    /// Reads `range` of a product's stream into `out`, which is as long. In the first pass ranges come in order, and make the digest.
    ///
    /// # Errors
    /// Why the product cannot be sent.
    pub(crate) fn read(
        &mut self,
        number: u32,
        range: Range<u64>,
        first_pass: bool,
        out: &mut [u8],
    ) -> Result<(), String> {
        let Some(product) = self.known.get_mut(number as usize) else {
            return Err("no such product".to_owned());
        };
        for (part, within) in product.shape.parts(range) {
            let out = &mut out[within];
            match part {
                Part::Head(at) => out.copy_from_slice(&product.head[at..at + out.len()]),
                Part::Content(at) => {
                    let read = match &product.source {
                        Source::Found(handle) => file(&mut self.open, number, handle)?
                            .read_at(at, out)
                            .map_err(|error| chain(&error))?,
                        Source::Piped(file) => {
                            sparse::read_at(file, at, out).map_err(|error| error.to_string())?
                        }
                    };
                    if read < out.len() {
                        return Err("it became shorter while it was sent".to_owned());
                    }
                    if first_pass && let Some(hasher) = &mut product.hasher {
                        hasher.update(out);
                    }
                }
                Part::Digest(at) => {
                    if let Some(hasher) = product.hasher.take() {
                        product.digest = Digest(*hasher.finalize().as_bytes());
                    }
                    out.copy_from_slice(&product.digest.0[at..at + out.len()]);
                }
            }
        }
        Ok(())
    }

    /// A product is needed no longer, unless somebody catches up.
    pub(crate) fn release(&mut self, product: u32) {
        self.open.remove(&product);
    }
}

/// The open file of a product; where too many are open, another is closed.
fn file<'o>(
    open: &'o mut BTreeMap<u32, SourceFile>,
    number: u32,
    handle: &Handle,
) -> Result<&'o SourceFile, String> {
    if !open.contains_key(&number) {
        if open.len() >= MOST_OPEN {
            // The oldest: repairs of what is held open again what they need.
            open.pop_first();
        }
        open.insert(number, handle.open().map_err(|error| chain(&error))?);
    }
    open.get(&number).ok_or_else(|| "it cannot be opened".to_owned())
}

/// Files that are open at a time.
const MOST_OPEN: usize = 64;
