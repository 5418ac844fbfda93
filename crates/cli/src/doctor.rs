//! `farlink doctor`: what on this host would keep a transfer from filling a path.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use farlink_doctor::{Facts, Finding, NetworkPath, examine, root_would_add, script, unexamined};
use farlink_host::{disk, path_mtu};
use farlink_wire::quantity::BitsPerSec;

use crate::exit;
use crate::output::{is_lost, print, tell};

/// Find what on this host would keep a transfer from filling a path.
///
/// Each finding says what something is, what it should be for that path, what it alone costs one TCP stream, and the
/// command that mends it. Nothing is changed. Exit code 0: nothing was found; 1: something was.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The path's round-trip time and rate, as in 91.6ms,10gbit [default: 100ms,10gbit]
    #[arg(long, value_name = "RTT,RATE")]
    path: Option<NetworkPath>,
    /// Measure too how fast the disk under this directory is: two seconds, at most 256 MiB, nothing is left there
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Measure too the longest packet that the path to this host carries: five packets at most, a second each
    #[arg(long, value_name = "HOST")]
    to: Option<String>,
    /// Print the findings as one line of JSON
    #[arg(long, conflicts_with = "script")]
    json: bool,
    /// Print all commands as one shell script
    #[arg(long)]
    script: bool,
}

impl Doctor {
    /// Examines this host, and says what it found.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.path.unwrap_or_default();
        let mut facts = Facts::read();
        facts.disk = self.disk.as_deref().map(disk::measure).transpose()?;
        facts.path_mtu = self.to.as_deref().map(path_mtu::measure).transpose()?;
        let findings = examine(&facts, path);
        let mut notes = vec![format!("not examined: {}", unexamined(&facts).join("; "))];
        let root = root_would_add(&facts, &findings);
        if !root.is_empty() {
            notes.push(format!("root would add: {}", root.join("; ")));
        }
        if self.path.is_none() {
            notes.insert(0, "the path was assumed: name yours with --path RTT,RATE".to_owned());
        }
        if self.json || self.script {
            for note in notes {
                tell(&format!("farlink: note: {note}"));
            }
        } else {
            print(&report(&findings, path, &notes));
        }
        if self.json {
            let array: Vec<_> = findings.iter().map(Finding::json).collect();
            print(&format!("{}\n", serde_json::to_string(&array)?));
        } else if self.script {
            print(&script(&findings, path));
        }
        // Who has not got what was found is told so, and not that there is something.
        let is_told = !findings.is_empty() && !is_lost();
        Ok(if is_told { ExitCode::from(exit::SOME) } else { ExitCode::SUCCESS })
    }
}

/// What was found, for a person: one line where that is nothing.
fn report(findings: &[Finding], path: NetworkPath, notes: &[String]) -> String {
    if findings.is_empty() {
        let notes = notes.join("; ");
        return format!("nothing was found that keeps a TCP stream from filling {path}; {notes}\n");
    }
    let mut text = format!(
        "to fill {path}, {} must be under way; worst first, each with what it alone costs one TCP stream\n\n",
        path.product()
    );
    let rows = std::iter::once(["name", "is", "should be", "cost", "command"].map(str::to_owned));
    let rows: Vec<_> = rows.chain(findings.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..4).map(width).collect();
    for (row, finding) in rows.iter().zip(std::iter::once(None).chain(findings.iter().map(Some))) {
        let [name, is, should_be, cost, command] = row;
        let [name_width, is_width, should_width, cost_width] = widths[..] else { continue };
        let line = format!(
            "{name:name_width$}  {is:is_width$}  {should_be:should_width$}  {cost:>cost_width$}  {command}"
        );
        text += line.trim_end();
        text.push('\n');
        let Some(finding) = finding else { continue };
        text += &format!("    {}\n", finding.why);
        if let Some(caution) = &finding.caution {
            text += &format!("    before the command: {caution}\n");
        }
        if let Some(without_root) = &finding.without_root {
            text += &format!("    without root: {without_root}\n");
        }
    }
    text.push('\n');
    for note in notes {
        text += &format!("{note}\n");
    }
    text
}

fn row(finding: &Finding) -> [String; 5] {
    let cost = finding.costs_bps.map(|bps| BitsPerSec::new(bps).map_or_else(|| "0".to_owned(), gigabits));
    [
        finding.name.clone(),
        finding.is.to_string(),
        finding.should_be.to_string(),
        cost.unwrap_or_else(|| "?".to_owned()),
        finding.command.clone().unwrap_or_default(),
    ]
}

/// In gigabits, as the rates of long paths are; in its own unit where that would be nothing.
fn gigabits(rate: BitsPerSec) -> String {
    if rate.get() < 1_000_000 {
        return rate.to_string();
    }
    format!("{:.3} Gb/s", rate.get() as f64 / 1e9)
}
