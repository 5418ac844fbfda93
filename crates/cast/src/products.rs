//! What a session sends: files as streams of bytes, read when their turn comes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use blake3::Hasher;
use farlink_host::beneath::Directory;
use farlink_mover::chain;
use farlink_mover::copy::filter::Filter;
use farlink_mover::copy::source::{Found, Handle, SourceFile, SourcePath, Walk};
use farlink_wire::cast::{Announcement, Part, Shape};
use farlink_wire::entry::{Digest, Kind};

/// Files, in the order in which they were named and found.
pub(crate) struct Products<'f> {
    walk: Walk<'f>,
    known: Vec<Product>,
    open: BTreeMap<u32, SourceFile>,
}

struct Product {
    head: Vec<u8>,
    shape: Shape,
    handle: Handle,
    path: String,
    /// Of its content, as far as the first pass has come, and then whole.
    hasher: Option<Box<Hasher>>,
    digest: Digest,
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

impl<'f> Products<'f> {
    /// Of `sources`, which are paths beneath `root`.
    pub(crate) fn new(root: Arc<Directory>, sources: &[SourcePath], filter: &'f Filter) -> Self {
        Self { walk: Walk::new(root, sources, filter), known: Vec::new(), open: BTreeMap::new() }
    }

    /// The stream of the next file; `None` where there is no other. What is not sent is told.
    pub(crate) fn next(&mut self, tell: &mut dyn FnMut(NotSent)) -> Option<Shape> {
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
            let head = Announcement { path: entry.path, metadata: entry.metadata }.encode();
            let Some(shape) = Shape::new(head.len(), size) else {
                tell(NotSent { path, reason: "it has more than 128 TiB".to_owned(), failed: true });
                continue;
            };
            let hasher = Some(Box::default());
            let digest = Digest::default();
            self.known.push(Product { head, shape, handle, path, hasher, digest });
            return Some(shape);
        }
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
                    let file = file(&mut self.open, number, &product.handle)?;
                    let read = file.read_at(at, out).map_err(|error| chain(&error))?;
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
