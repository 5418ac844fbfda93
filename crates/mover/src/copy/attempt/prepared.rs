//! What is looked at before the far end is called: what is wrong here is said first.

use std::sync::Arc;

use farlink_host::beneath::Directory;
use farlink_wire::message::Way;
use farlink_wire::message::copy::Place;

use super::Attempt;
use crate::copy::CopyError;
use crate::copy::filter::Filter;
use crate::copy::pattern::Pattern;
use crate::copy::source::{SourcePath, absolute};
use crate::copy::target::{Asked, Destination, Stays, Target, TargetOptions};

/// What was looked at before the far end is called.
pub(in crate::copy) enum Prepared {
    Sources(Vec<(Arc<Directory>, SourcePath)>, Filter),
    Target(Target, Option<std::fs::File>),
}

impl Attempt<'_> {
    /// Looks at what is here: the sources, or the destination.
    pub(in crate::copy) fn prepare(&self) -> Result<Prepared, CopyError> {
        let plan = self.plan;
        let root = root()?;
        let mut filter = Filter::new(self.rules)?.only(plan.names.as_deref())?;
        match plan.way {
            Way::Forward => {
                if plan.far.is_local() {
                    let destination = self.destination()?;
                    // What cannot be a destination is refused by a dry run, too.
                    Target::foreseeing(&root, &destination, self.names.key, TargetOptions::default())?;
                    filter = filter.without(&root, destination.path);
                }
                let mut sources = Vec::new();
                for place in &plan.sources {
                    sources.push((
                        Arc::clone(&root),
                        SourcePath::new(absolute(place.as_bytes()).map_err(CopyError::working_directory)?)?,
                    ));
                }
                Ok(Prepared::Sources(sources, filter))
            }
            Way::Reverse => {
                let options = TargetOptions {
                    fsync: plan.fsync,
                    read_back: plan.read_back,
                    is_again: self.resume || plan.update,
                    stays: Stays::of(plan.update, self.resume),
                    asked: Some(Arc::new(Asked::new(expected(&plan.sources), filter))),
                    ..TargetOptions::default()
                };
                let destination = self.destination()?;
                let sink = root.open_sink(&destination.path).ok();
                let target = Target::find(&root, &destination, self.names.key, options)?;
                Ok(Prepared::Target(target, sink))
            }
        }
    }

    /// A destination that is on this host, of a copy that is only foretold; `None` where it is a device, of which nothing is asked.
    pub(in crate::copy) fn here(&self) -> Result<Option<Target>, CopyError> {
        let stays = Stays::of(self.plan.update, self.resume);
        let options = TargetOptions { stays, ..TargetOptions::default() };
        Ok(Target::foreseeing(&root()?, &self.destination()?, self.names.key, options)?)
    }

    fn destination(&self) -> Result<Destination, CopyError> {
        let path = absolute(self.plan.destination.as_bytes()).map_err(CopyError::working_directory)?;
        Ok(Destination { path, several: self.several(), above: Vec::new() })
    }
}

fn root() -> Result<Arc<Directory>, CopyError> {
    let root = Directory::open(std::path::Path::new("/")).map(Arc::new);
    root.map_err(|source| CopyError::System { attempt: "open the root directory", source })
}

/// The first components of what may come: the last ones of the sources. `None` where what is in one of them is asked for, under
/// names that nobody knows beforehand.
fn expected(sources: &[Place]) -> Option<Vec<Pattern>> {
    let name = |place: &Place| {
        let name = place.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        (!matches!(name, b"" | b"." | b"..")).then(|| Pattern::of(name))
    };
    sources.iter().map(name).collect()
}
