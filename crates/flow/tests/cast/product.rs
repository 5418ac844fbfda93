//! What a simulated session sends, and the ways that it takes.

use std::ops::Range;

use farlink_flow::digest;
use farlink_wire::cast::{Announcement, Part, Shape};
use farlink_wire::entry::{Digest, Metadata};
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A product in memory: what is not head or digest is zeros where `seed` is none.
pub(crate) struct Product {
    pub(crate) shape: Shape,
    pub(crate) name: RelativePath,
    head: Vec<u8>,
    seed: Option<u64>,
    digest: Digest,
}

impl Product {
    pub(crate) fn new(name: &str, content: u64, seed: Option<u64>) -> Self {
        let name = RelativePath::new(name).unwrap();
        let announcement = Announcement { path: name.clone(), metadata: Metadata::default() };
        let head = announcement.encode();
        let shape = Shape::new(head.len(), content).unwrap();
        let mut product = Self { shape, name, head, seed, digest: Digest::default() };
        if seed.is_some() {
            product.digest = digest::whole(&product.content());
        }
        product
    }

    /// Announces it by another name of the same length, whatever that is.
    pub(crate) fn rename(&mut self, name: &str) {
        let from = self.head.len() - name.len();
        self.head[from..].copy_from_slice(name.as_bytes());
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.shape.content() as usize];
        if let Some(seed) = self.seed {
            Pcg64Mcg::seed_from_u64(seed).fill(&mut bytes[..]);
        }
        bytes
    }

    /// Bytes of the stream.
    pub(crate) fn read(&self, content: &[u8], range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        for (part, within) in self.shape.parts(range) {
            let len = within.len();
            match part {
                Part::Head(at) => bytes[within].copy_from_slice(&self.head[at..at + len]),
                Part::Digest(at) => bytes[within].copy_from_slice(&self.digest.0[at..at + len]),
                Part::Content(_) if content.is_empty() => {}
                Part::Content(at) => bytes[within].copy_from_slice(&content[at as usize..at as usize + len]),
            }
        }
        bytes
    }
}

/// The way to one receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) delay: Nanos,
    /// Of packets to the group, each by itself.
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// Of packets that come later, by so much.
    pub(crate) late: f64,
    pub(crate) late_by: Nanos,
    pub(crate) corrupt: f64,
    /// The receiver is stopped for this long of each 100 ms, and has so many bytes of buffer meanwhile.
    pub(crate) stopped: Option<(Nanos, u64)>,
}

impl Path {
    pub(crate) fn new(delay: Nanos, loss: f64) -> Self {
        let late_by = Nanos(150_000);
        Self { delay, loss, duplicate: 0.0, late: 0.0, late_by, corrupt: 0.0, stopped: None }
    }
}
