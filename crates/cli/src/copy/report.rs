//! What a copy tells a person, a program and a manifest.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use farlink_mover::copy::file_event::{Became, FileEvent};
use farlink_mover::copy::{Foretold, Notice, Progress, Summary};
use farlink_wire::message::copy::Lack;
use farlink_wire::quantity::Bytes;
use farlink_wire::record::{Outcome, Record};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::manifest::Manifest;
use crate::memory::of_circuit;
use crate::output::{print, tell};

/// Where it is told.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    quiet: bool,
    verbose: bool,
    /// Nothing is copied: what would be is what is asked for.
    dry_run: bool,
    bar: Option<ProgressBar>,
    /// Progress goes to a file or a pipe, a line now and then.
    plain: bool,
    manifest: Option<Manifest>,
    shown: Option<Instant>,
    /// When and how many bytes were done, some seconds ago, for the rate.
    past: Vec<(f64, u64)>,
    /// Names whose failure was said, and how many beneath them failed, too, and were not said.
    failed: HashSet<String>,
    beneath: u64,
    /// Whether it was said that there is no room, and of how many names more it was not.
    is_full: bool,
    without_room: u64,
    /// What the host is called that the other end is on, where that is another.
    far: Option<String>,
}

impl Report {
    pub(super) fn new(
        (json, quiet): (bool, bool),
        verbose: bool,
        dry_run: bool,
        live: bool,
        manifest: Option<&Path>,
        far: Option<String>,
    ) -> anyhow::Result<Self> {
        let manifest = manifest.map(Manifest::open).transpose()?;
        let plain = live && !io::stderr().is_terminal();
        let bar = (live && !plain).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{wide_bar} {percent:>3}%  {msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Ok(Self {
            json,
            quiet,
            verbose,
            dry_run,
            bar,
            plain,
            manifest,
            shown: None,
            past: Vec::new(),
            failed: HashSet::new(),
            beneath: 0,
            is_full: false,
            without_room: 0,
            far,
        })
    }

    /// Whether names that were copied are of interest.
    pub(super) const fn wants_names(&self) -> bool {
        self.json || self.verbose || self.manifest.is_some()
    }

    /// What would be copied.
    fn foretold(&mut self, event: &FileEvent) {
        self.list(event);
        let is_left = matches!(event.what, Became::Same | Became::Newer);
        if !self.json && (self.verbose || !is_left) {
            print(&format!("{}  {}{}\n", Bytes(event.bytes), event.path, remark(event)));
        }
    }

    /// Says what that comes to; beside the names, which a program may read.
    pub(super) fn conclude_foretold(&mut self, foretold: &Foretold) {
        if self.json || self.quiet || foretold.interrupted {
            return;
        }
        let &Foretold { copied, bytes, failed, .. } = foretold;
        let mut text = format!("farlink: {}, {}, would be copied", names(copied), Bytes(bytes));
        if failed > 0 {
            text += &format!("; {} would not", names(failed));
        }
        self.say(&text);
    }

    pub(super) fn on(&mut self, notice: &Notice) {
        match notice {
            Notice::Progress(progress) => self.progress(progress),
            Notice::File(event) if self.dry_run && !matches!(event.what, Became::Lacking(..)) => {
                self.foretold(event);
            }
            Notice::File(event) => self.file(event),
            Notice::Warning(text) => self.say(&format!("farlink: {text}")),
            Notice::Again => self.begin_again(),
        }
    }

    /// All names are told anew.
    fn begin_again(&mut self) {
        self.manifest.iter_mut().for_each(Manifest::begin);
        self.failed.clear();
        (self.beneath, self.is_full, self.without_room) = (0, false, 0);
    }

    /// Writes what became of a name where programs read it, once: what of a later source is skipped, as an earlier one has its name, is not told.
    fn list(&mut self, event: &FileEvent) {
        if matches!(event.what, Became::Lacking(Lack::Later, _)) {
            return;
        }
        if self.manifest.is_none() && !self.json {
            return;
        }
        let mut line = line(event, self.far.as_deref());
        if self.dry_run {
            line["dry_run"] = true.into();
        }
        if let Some(manifest) = &mut self.manifest {
            manifest.write(&line);
        }
        if self.json {
            print(&(line.to_string() + "\n"));
        }
    }

    fn file(&mut self, event: &FileEvent) {
        self.list(event);
        match &event.what {
            Became::Lacking(Lack::Failed, _) if self.follows_another(&event.path) => self.beneath += 1,
            Became::Lacking(_, reason) if self.is_without_room_again(reason) => self.without_room += 1,
            Became::Lacking(Lack::Skipped | Lack::Later, what) => {
                let path = if event.path.is_empty() { "." } else { &event.path };
                self.say(&format!("farlink: {path}: skipped, {what}"));
            }
            Became::Lacking(_, reason) => {
                let path = Some(event.path.as_str()).filter(|path| !is_named(path, reason));
                let path = path.map(|path| format!("{path}: ")).unwrap_or_default();
                self.say(&format!("farlink: {path}{}{reason}", self.place(event)));
            }
            Became::Copied | Became::Same | Became::Newer if self.verbose && !self.json => {
                self.say(&format!("{}{}", event.path, remark(event)));
            }
            Became::Copied | Became::Same | Became::Newer => {}
        }
    }

    /// What stands before a reason of another host.
    fn place(&self, event: &FileEvent) -> String {
        self.far.as_ref().filter(|_| event.is_far).map(|host| format!("on {host}: ")).unwrap_or_default()
    }

    /// Whether a failure needs no line of its own, as that there is no room was said.
    fn is_without_room_again(&mut self, reason: &str) -> bool {
        let is_full = FULL.iter().any(|full| reason.ends_with(full));
        is_full && !self.verbose && std::mem::replace(&mut self.is_full, true)
    }

    /// Whether a failure needs no line of its own: that of a directory above was said. Otherwise it is now.
    fn follows_another(&mut self, path: &str) -> bool {
        if self.verbose {
            return false;
        }
        let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
        if above.any(|directory| self.failed.contains(directory)) {
            return true;
        }
        if self.failed.len() < MOST_FAILED {
            self.failed.insert(path.to_owned());
        }
        false
    }

    fn progress(&mut self, progress: &Progress) {
        let often = if self.plain { SELDOM } else { OFTEN };
        if self.shown.is_some_and(|shown| shown.elapsed() < often) {
            return;
        }
        self.shown = Some(Instant::now());
        let rate = self.rate(progress);
        let left = progress.of_bytes.saturating_sub(progress.bytes) as f64 * 8.0 / rate.max(1.0);
        if self.json && !self.quiet {
            let told = json!({
                "progress": {
                    "bytes": progress.bytes, "of_bytes": progress.of_bytes,
                    "files": progress.entries, "of_files": progress.of_entries,
                    "known": progress.known, "seconds": progress.seconds, "bps": rate,
                }
            });
            print(&(told.to_string() + "\n"));
        }
        if self.bar.is_some() || self.plain {
            let time = match progress.known {
                false => "counting".to_owned(),
                true if rate > 0.0 || progress.bytes >= progress.of_bytes => format!("{left:.0} s left"),
                // It has just begun, or nothing has come for some seconds: what is there is read, say.
                true => "? s left".to_owned(),
            };
            let (bytes, of) = (Bytes(progress.bytes), Bytes(progress.of_bytes));
            let text = format!(
                "{:.2} Gb/s  {bytes} of {of}  {} of {} {}  {time}",
                rate / 1e9,
                progress.entries,
                progress.of_entries,
                if progress.of_entries == 1 { "file" } else { "files" }
            );
            match &self.bar {
                Some(bar) => {
                    bar.set_length(progress.of_bytes.max(1));
                    bar.set_position(progress.bytes.min(progress.of_bytes));
                    bar.set_message(text);
                }
                None => tell(&text),
            }
        }
    }

    /// Bits per second over the last few seconds.
    fn rate(&mut self, progress: &Progress) -> f64 {
        self.past.push((progress.seconds, progress.bytes));
        let recent = self.past.iter().position(|(at, _)| progress.seconds - at <= RECENT).unwrap_or(0);
        self.past.drain(..recent);
        match self.past.first() {
            Some((at, bytes)) if progress.seconds > *at => {
                progress.bytes.saturating_sub(*bytes) as f64 * 8.0 / (progress.seconds - at)
            }
            _ => 0.0,
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(text)),
            None => tell(text),
        }
    }

    /// Nothing more comes, of a copy that was `begun` or was refused.
    pub(super) fn close(&mut self, begun: bool) -> anyhow::Result<()> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if self.beneath > 0 {
            let count = names(self.beneath);
            tell(&format!("farlink: not copied either: {count} beneath these (--verbose names each)"));
        }
        if self.without_room > 0 {
            let count = names(self.without_room);
            tell(&format!(
                "farlink: not copied either, as there was no room: {count} (--verbose names each)"
            ));
        }
        self.manifest.take().map_or(Ok(()), |manifest| manifest.close(begun))
    }
}

/// Whether `reason` begins with `path`, or that is the whole, which needs no name.
fn is_named(path: &str, reason: &str) -> bool {
    let follows = |rest: &str| BEHIND_NAMES.iter().any(|behind| rest.starts_with(behind));
    matches!(path, "" | ".") || reason.strip_prefix(path).is_some_and(follows)
}

/// How reasons go on that begin with a name: others begin with words that a name may be, too.
const BEHIND_NAMES: [&str; 4] = [" is there, but ", " reads back from ", " leads ", " is what "];

/// What became of a name, as an object; `far` is the other host.
fn line(event: &FileEvent, far: Option<&str>) -> serde_json::Value {
    let (outcome, reason) = match &event.what {
        Became::Copied => ("copied", None),
        Became::Same => ("same", None),
        Became::Newer => ("newer", None),
        Became::Lacking(Lack::Skipped | Lack::Later, reason) => ("skipped", Some(reason)),
        Became::Lacking(_, reason) => ("failed", Some(reason)),
    };
    let mut object = json!({"path": event.path, "bytes": event.bytes, "outcome": outcome});
    if let Some(digest) = event.digest {
        object["blake3"] = json!(digest);
    }
    if let Some(reason) = reason {
        object["reason"] = json!(reason);
        if let Some(far) = far.filter(|_| event.is_far) {
            object["host"] = json!(far);
        }
    }
    object
}

fn remark(event: &FileEvent) -> String {
    match &event.what {
        Became::Copied => String::new(),
        Became::Same => " (was there)".to_owned(),
        Became::Newer => " (newer there)".to_owned(),
        Became::Lacking(_, reason) => format!(" ({reason})"),
    }
}

/// How the kernel's words end where a disk, or what somebody may have of it, is full: ENOSPC and EDQUOT.
const FULL: [&str; 2] = ["(os error 28)", "(os error 122)"];

fn names(count: u64) -> String {
    if count == 1 { "1 name".to_owned() } else { format!("{count} names") }
}

/// What came of it; where it was ended, whether the same command takes it up.
pub(super) fn summary(record: &Record, summary: &Summary, is_taken_up: bool) -> String {
    let seconds = record.duration_s.unwrap_or(0.0);
    let were = |count: u64| if count == 1 { "was" } else { "were" };
    let mut text = format!("{}, {}", names(summary.entries), Bytes(summary.bytes));
    let tells = record.bytes >= WORTH_A_RATE || summary.entries >= WORTH_A_RATE_NAMES;
    let new = summary.bytes.saturating_sub(summary.same);
    match record.outcome {
        // Otherwise the rate would be of nothing.
        Outcome::Interrupted if record.bytes > new => {
            text += &format!(" and {} of what is not whole", Bytes(record.bytes - new));
        }
        // Holes do not leave, nor does what an earlier copy brought of a file.
        Outcome::Ok if record.bytes < new => text += &format!(" ({} sent)", Bytes(record.bytes)),
        // What failed was sent, or some of it.
        Outcome::Failed if record.bytes > new => text += &format!(" ({} sent)", Bytes(record.bytes)),
        _ => {}
    }
    if seconds > 0.0 {
        let whole = record.complete_s.unwrap_or(seconds);
        text += &format!(" in {whole:.3} s");
        if seconds < whole * NEARLY && tells {
            text += &format!(", of which the data took {seconds:.3} s");
        }
        if tells {
            text += &format!(": {:.3} Gb/s", record.bytes as f64 * 8.0 / whole / 1e9);
        }
    }
    if let Some(setup) = record.setup_s {
        text += &format!(", setup {:.1} ms", setup * 1e3);
    }
    if summary.same > 0 {
        text += &format!(", {} were there", Bytes(summary.same));
    }
    if let Some(bottleneck) = summary.bottleneck.filter(|_| seconds > 0.0 && summary.entries > 0 && tells) {
        text += &format!(", bound by {}", bottleneck.words());
    }
    text += &of_circuit(record);
    text += &of_careful_resume(record);
    if summary.failed > 0 {
        text += &format!("; {} {} not copied", names(summary.failed), were(summary.failed));
    }
    if summary.newer > 0 {
        let are = if summary.newer == 1 { "is" } else { "are" };
        text += &format!("; {} {are} newer there", names(summary.newer));
    }
    if summary.skipped > 0 {
        text += &format!("; {} {} skipped", summary.skipped, were(summary.skipped));
    }
    if record.emulator.is_some_and(|health| health.overrun) {
        text += ", the emulator fell behind";
    }
    if record.outcome == Outcome::Interrupted {
        text += if is_taken_up { " (interrupted: the same command goes on)" } else { " (interrupted)" };
    }
    text + "\n"
}

/// Less than this, of fewer names, is over as soon as it has begun, and tells of no rate and of nothing that bound it.
const WORTH_A_RATE: u64 = 64 << 10;
const WORTH_A_RATE_NAMES: u64 = 100;

/// Data that took less of a copy's time are told of beside it.
const NEARLY: f64 = 0.9;

/// Names whose failure is remembered.
const MOST_FAILED: usize = 10_000;

/// How often progress is shown.
const OFTEN: Duration = Duration::from_millis(200);

/// How often where nobody watches it, and every line stays.
const SELDOM: Duration = Duration::from_secs(10);

/// Seconds over which the rate is told.
const RECENT: f64 = 3.0;

/// What became of a careful resume, where there was one.
fn of_careful_resume(record: &Record) -> String {
    let resumed = record.extra.get("careful_resume");
    let jump = resumed.and_then(|resumed| resumed["jump_bps"].as_f64());
    let Some((resumed, jump)) = resumed.zip(jump) else { return String::new() };
    let retreat = if resumed["outcome"] == "retreated" { ", which was too much" } else { "" };
    format!(", begun at {:.3} Gb/s by what the path carried before{retreat}", jump / 1e9)
}

#[cfg(test)]
mod tests {
    use farlink_mover::copy::Bottleneck;

    use super::*;

    #[test]
    fn that_there_is_no_room_is_said_once() {
        let report = |verbose| Report::new((false, true), verbose, false, false, None, None).unwrap();
        let (mut brief, mut verbose) = (report(false), report(true));
        let full = "write x: No space left on device (os error 28)";
        assert!(!brief.is_without_room_again("open x: Permission denied (os error 13)"));
        let again = ["write y: Disk quota exceeded (os error 122)", full];
        assert!(!brief.is_without_room_again(full));
        assert!(again.iter().all(|reason| brief.is_without_room_again(reason)));
        assert!(!again.iter().any(|reason| verbose.is_without_room_again(reason)));
    }

    #[test]
    fn a_summary_says_what_bound_it_and_what_is_lacking() {
        let record = Record {
            outcome: Outcome::Failed,
            bytes: 1_000_000_000,
            duration_s: Some(2.0),
            setup_s: Some(0.25),
            ..Record::default()
        };
        let counts = Summary {
            entries: 3,
            failed: 1,
            skipped: 2,
            bytes: 1_000_000_000,
            bottleneck: Some(Bottleneck::SourceDisk),
            ..Summary::default()
        };
        assert_eq!(
            summary(&record, &counts, true),
            "3 names, 953.674MiB in 2.000 s: 4.000 Gb/s, setup 250.0 ms, bound by source disk; 1 name was not copied; \
             2 were skipped\n"
        );
        // Nothing bound what took no time, or where nothing came.
        let none = Summary { entries: 0, ..counts };
        assert!(!summary(&record, &none, true).contains("bound by"));
        // Nor where all but nothing was sent, unless that was many names.
        let small = Record { bytes: 2, ..record };
        let one = Summary { failed: 0, skipped: 0, bytes: 2, entries: 1, ..counts };
        assert_eq!(summary(&small, &one, true), "1 name, 2B in 2.000 s, setup 250.0 ms\n");
        let many = Summary { entries: 1000, ..one };
        assert!(
            summary(&small, &many, true).ends_with(": 0.000 Gb/s, setup 250.0 ms, bound by source disk\n")
        );
    }
}
