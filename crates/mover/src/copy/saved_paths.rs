//! What a client remembers of the paths that it used: how much they carried (RFC 9959). The next copy over the same path begins from there.
//!
//! A file a path. Forgetting (another user, a home that cannot be written) costs no more than the time of slow start.

use core::num::NonZeroU64;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, SystemTime};

use farlink_flow::careful_resume::{CarefulResume, is_like};
use farlink_wire::message::Way;
use farlink_wire::message::copy::{Account, CarefulResumeOutcome, SavedPath};
use farlink_wire::quantity::BitsPerSec;
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::state;
use super::steering::can_jump;

/// The path of one plan, as it is remembered; of none where the plan says how TCP is to send.
#[derive(Debug)]
pub(super) struct SavedPaths {
    file: Option<PathBuf>,
    name: String,
}

/// What a file has.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    /// Whose: for people, and because two names may have the same hash.
    path: String,
    #[serde(flatten)]
    saved: SavedPath,
}

impl SavedPaths {
    /// That of `plan`.
    pub(super) fn of(plan: &Plan) -> Self {
        let can = plan.way == Way::Reverse || can_jump();
        Self::beneath(state::directory().filter(|_| can), plan)
    }

    fn beneath(directory: Option<PathBuf>, plan: &Plan) -> Self {
        let is_open = plan.careful_resume
            && !plan.far.is_local()
            && plan.congestion.is_none()
            && plan.declared.is_none()
            && plan.buffer.is_none()
            && plan.limit.is_none();
        let mut name = format!("{} {}", if plan.way == Way::Forward { "to" } else { "from" }, plan.far);
        if let Some(bind) = plan.bind {
            name += &format!(" by {bind}");
        }
        let hash = blake3::hash(name.as_bytes()).to_hex();
        let file = directory.filter(|_| is_open).map(|state| state.join("paths").join(&hash[..32]));
        Self { file, name }
    }

    /// What is remembered, where that is not old, and of use.
    pub(super) fn recall(&self) -> Option<SavedPath> {
        let file = self.file.as_deref().filter(|file| !is_old(file))?;
        let content: Content = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        let SavedPath { rate, rtt, is_full } = content.saved;
        let is_useful = content.path == self.name && CarefulResume::new(rate, rtt, is_full).is_some();
        is_useful.then_some(content.saved)
    }

    /// Remembers what a copy showed, by its sender's `account`, or by what its receiver `saw`, bits a second: of a copy that this end fetches the
    /// account may be as old as a round trip. It began with what was `saved`.
    pub(super) fn keep(&self, saved: Option<SavedPath>, account: &Account, saw: Option<BitsPerSec>) {
        let (Some(file), Some(found)) = (&self.file, account.path) else { return };
        // What waited for the receiver came faster than the path carries it.
        let found = match saw.map(|saw| saw.min(BitsPerSec(found.rate.0.saturating_mul(TWICE)))) {
            Some(rate) if rate > found.rate => SavedPath { rate, is_full: false, ..found },
            _ => found,
        };
        let retreated =
            account.careful_resume.is_some_and(|resumed| resumed.outcome == CarefulResumeOutcome::Retreated);
        // What did not fill the path says nothing of it, unless it shows more, or it is another.
        let is_news =
            |saved: SavedPath| found.is_full || found.rate >= saved.rate || !is_like(saved.rtt, found.rtt);
        if retreated || saved.is_none_or(is_news) {
            let content = Content { path: self.name.clone(), saved: found };
            // Where this cannot be written, the next copy begins as this one did.
            let _ = write(file, &content);
        }
    }
}

fn write(file: &Path, content: &Content) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(directory)?;
    for old in fs::read_dir(directory)?.flatten().map(|entry| entry.path()).filter(|path| is_old(path)) {
        let _ = fs::remove_file(old);
    }
    // Whole or not at all: another copy may read it now.
    let whole = file.with_extension(process::id().to_string());
    fs::write(&whole, serde_json::to_vec(content)?)?;
    fs::rename(whole, file)
}

/// Whether `file` is older than what it says is good for; what is from the future is.
fn is_old(file: &Path) -> bool {
    let age = fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .map(|at| SystemTime::now().duration_since(at));
    !matches!(age, Ok(Ok(age)) if age < LIFETIME)
}

/// For how long it is remembered what a path carried. RFC 9959 leaves that to who knows how soon it may change: dedicated connections do
/// seldom, and a jump that is wrong costs a round trip.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

const TWICE: NonZeroU64 = NonZeroU64::new(2).unwrap();

#[cfg(test)]
mod tests {
    use farlink_wire::message::copy::CarefulResumeAccount;
    use farlink_wire::quantity::{Bytes, Nanos};

    use super::super::names::tests::plan;
    use super::super::target::tests::Scratch;
    use super::*;
    use crate::far::{Far, Server};

    const RTT: Nanos = Nanos(100_000_000);

    fn of(directory: &Path, plan: &Plan) -> SavedPaths {
        SavedPaths::beneath(Some(directory.to_owned()), plan)
    }

    fn to(host: &str) -> Plan {
        let far = Far::Server(Server { target: host.parse().unwrap(), credentials: None });
        Plan { far, ..plan("tree/", "/there") }
    }

    fn gbit(rate: u64) -> BitsPerSec {
        BitsPerSec::new(rate * 1_000_000_000).unwrap()
    }

    /// Of one that did not fill its path.
    fn account(rate: u64) -> Account {
        Account { path: saved(rate), ..Account::default() }
    }

    fn saved(rate: u64) -> Option<SavedPath> {
        Some(SavedPath { rate: gbit(rate), rtt: RTT, is_full: false })
    }

    #[test]
    fn what_a_path_carried_is_recalled_for_that_path_alone() {
        let directory = Scratch::new("paths");
        let plan = to("there");
        let paths = of(&directory.0, &plan);
        assert_eq!(paths.recall(), None);
        paths.keep(None, &account(9), None);
        assert_eq!(paths.recall(), saved(9));
        let bound = Plan { bind: Some("10.0.0.1".parse().unwrap()), ..to("there") };
        let back = Plan { way: Way::Reverse, ..to("there") };
        for other in [to("elsewhere"), bound, back] {
            assert_eq!(of(&directory.0, &other).recall(), None, "{other:?}");
        }
        let chosen = Plan { buffer: Some(Bytes(1 << 20).try_into().unwrap()), ..to("there") };
        let refused = Plan { careful_resume: false, ..to("there") };
        for other in [chosen, refused] {
            assert_eq!(of(&directory.0, &other).recall(), None, "{other:?}");
        }
    }

    #[test]
    fn what_did_not_fill_a_path_says_nothing_of_it_unless_it_carried_more_or_retreated() {
        let directory = Scratch::new("paths");
        let paths = of(&directory.0, &to("there"));
        let kept = |before, account: &Account| {
            paths.keep(None, &self::account(8), None);
            paths.keep(before, account, None);
            paths.recall()
        };
        assert_eq!(kept(saved(8), &account(2)), saved(8));
        assert_eq!(kept(saved(8), &account(9)), saved(9));
        let outcome = CarefulResumeOutcome::Retreated;
        let careful_resume = Some(CarefulResumeAccount { jump: gbit(4), outcome });
        assert_eq!(kept(saved(8), &Account { careful_resume, ..account(2) }), saved(2));
        assert_eq!(kept(saved(8), &Account::default()), saved(8));
        let path = saved(2).map(|path| SavedPath { is_full: true, ..path });
        assert_eq!(kept(saved(8), &Account { path, ..Account::default() }), path);
        // The receiver saw more than its sender had heard of when it said so.
        paths.keep(saved(8), &account(5), Some(gbit(9)));
        assert_eq!(paths.recall(), saved(9));
        paths.keep(None, &account(4), Some(gbit(9)));
        assert_eq!(paths.recall(), saved(8), "more than twice as much had waited");
        let path = saved(2).map(|path| SavedPath { rtt: Nanos(RTT.0 * 2), ..path });
        assert_eq!(kept(saved(8), &Account { path, ..Account::default() }), path, "it is another path");
        // Less than a jump is of use for.
        let (path, rate) = (saved(9), BitsPerSec::new(9_000_000).unwrap());
        let path = path.map(|path| SavedPath { rate, ..path });
        paths.keep(None, &Account { path, ..Account::default() }, None);
        assert_eq!(paths.recall(), None);
    }

    #[test]
    fn what_is_old_or_damaged_is_not_recalled_and_what_is_old_goes() {
        let directory = Scratch::new("paths");
        let (paths, others) = (of(&directory.0, &to("there")), of(&directory.0, &to("elsewhere")));
        paths.keep(None, &account(9), None);
        let file = paths.file.clone().unwrap();
        let old = SystemTime::now() - LIFETIME - Duration::from_secs(1);
        fs::File::options().append(true).open(&file).unwrap().set_modified(old).unwrap();
        assert_eq!(paths.recall(), None);
        others.keep(None, &account(9), None);
        assert!(!file.exists() && others.recall().is_some());
        fs::write(others.file.as_ref().unwrap(), b"{\"path\":").unwrap();
        assert_eq!(others.recall(), None);
    }
}
