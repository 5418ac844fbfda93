//! Who may take part by what keys may read: a session gives everything that it sends to whoever it lets in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use farlink_mover::copy::source::SourcePath;
use farlink_mover::secure::Admission;
use farlink_wire::key::PublicKey;

use super::Plan;

/// What a session sends, and what each key may read.
#[derive(Debug)]
pub(crate) struct Grants {
    admission: Arc<Admission>,
    sources: Vec<Source>,
}

/// Something that is sent.
#[derive(Debug)]
struct Source {
    /// As it was named.
    named: String,
    /// Where it is, without links; nowhere where it came through a pipe or is not there yet.
    place: Option<PathBuf>,
}

impl Grants {
    /// Those of a session; `None` where nobody has keys.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let (_, admission) = plan.keys.as_ref()?;
        let paths = plan.sources.iter().chain(&plan.watch);
        Some(Self::new(Arc::clone(admission), paths, plan.piped.is_some()))
    }

    fn new<'p>(
        admission: Arc<Admission>,
        paths: impl Iterator<Item = &'p SourcePath>,
        is_piped: bool,
    ) -> Self {
        let piped =
            is_piped.then(|| Source { named: "what comes by standard input".to_owned(), place: None });
        let named =
            |path: &SourcePath| Source { named: path.to_string(), place: path.to_path().canonicalize().ok() };
        Self { admission, sources: piped.into_iter().chain(paths.map(named)).collect() }
    }

    /// Why the owner of `key` may not take part, where that is so.
    pub(crate) fn refusal(&self, key: Option<PublicKey>) -> Option<String> {
        let Some((key, admitted)) = key.and_then(|key| Some((key, self.admission.grant(key)?))) else {
            return Some("it showed no key that may come in".to_owned());
        };
        // What is nowhere is had by who may read everything.
        let root = Path::new("/");
        let readable: Vec<_> =
            admitted.grant.read.iter().filter_map(|directory| directory.canonicalize().ok()).collect();
        let may_read = |source: &&Source| {
            let place = source.place.as_deref().unwrap_or(root);
            readable.iter().any(|directory| place.starts_with(directory))
        };
        let source = self.sources.iter().find(|source| !may_read(source))?;
        let place = source.place.as_deref().unwrap_or(root);
        let directory = if place.is_dir() { place } else { place.parent().unwrap_or(root) };
        Some(format!(
            "the key {key} may not read {}: its line in authorized_keys needs read={directory:?}",
            source.named
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use farlink_wire::key::Authorized;

    use super::*;

    const KEY: &str = "farlink-ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    /// Whether the key of a line may have the sources, and what is said where it may not.
    fn refusal(line: &str, sources: &[PathBuf], is_piped: bool) -> Option<String> {
        let Authorized { key, grant } = format!("{line} {KEY}").parse().unwrap();
        let paths: Vec<_> = sources
            .iter()
            .map(|path| SourcePath::new(path.as_os_str().as_encoded_bytes()).unwrap())
            .collect();
        Grants::new(Arc::new(Admission::of_one(key, grant)), paths.iter(), is_piped).refusal(Some(key))
    }

    #[test]
    fn a_key_takes_part_that_may_read_everything_that_is_sent() {
        let top = std::env::temp_dir().join(format!("grants-{}", std::process::id()));
        let at = |path: &str| top.join(path);
        fs::create_dir_all(at("data/run")).unwrap();
        fs::create_dir_all(at("database")).unwrap();
        fs::write(at("data/file"), "").unwrap();
        symlink(at("data"), at("link")).unwrap();
        symlink(at("database"), at("data/out")).unwrap();
        let read = |path: &str| format!("read={}", at(path).display());
        for (line, source, may) in [
            (read("data"), "data/file", true),
            (read("data"), "data", true),
            (read("data"), "data/run/", true),
            (read("data"), "database", false),
            (read("data/run"), "data", false),
            (read("data/run"), "data/file", false),
            (read("data/file"), "data/file", true),
            (read("link"), "data/file", true),
            (read("data"), "link/file", true),
            (read("data"), "data/../database", false),
            (read("data"), "data/out/", false),
            (read("data"), "data/later", false),
            (read("later"), "data/file", false),
            (format!("write={}", at("data").display()), "data/file", false),
            (String::new(), "data/file", false),
            ("read=/".to_owned(), "data/later", true),
        ] {
            let refused = refusal(&line, &[at(source)], false);
            assert_eq!(refused.is_none(), may, "{line}, {source}: {refused:?}");
        }
        // Everything must be readable, and the first that is not is named, with the mend.
        let both = refusal(&read("data/run"), &[at("data/run"), at("data/file")], false).unwrap();
        let expected = format!(
            "the key {KEY} may not read {}: its line in authorized_keys needs read={:?}",
            at("data/file").display(),
            at("data")
        );
        assert_eq!(both, expected);
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn what_came_through_a_pipe_is_had_by_who_may_read_everything() {
        assert_eq!(refusal("read=/", &[], true), None);
        let refused = refusal("read=/tmp", &[], true).unwrap();
        assert!(refused.contains("standard input") && refused.ends_with("read=\"/\""), "{refused}");
    }

    #[test]
    fn who_shows_no_key_that_is_known_has_nothing() {
        let Authorized { key, grant } = format!("read=/ {KEY}").parse().unwrap();
        let grants = Grants::new(Arc::new(Admission::of_one(key, grant)), [].iter(), false);
        assert_eq!(grants.refusal(Some(key)), None);
        assert!(grants.refusal(Some(PublicKey([1; 32]))).is_some() && grants.refusal(None).is_some());
    }
}
