//! What is known of a transfer so far: arrivals, the sender's streams, and the accounts of both ends.

use farlink_wire::message::{Arrival, Received, Sent, TraceRow};
use farlink_wire::quantity::Nanos;
use farlink_wire::record::StreamTrace;

/// What is known of a transfer so far.
#[derive(Debug)]
pub(crate) struct Account {
    interval: Nanos,
    arrived: Vec<u64>,
    traces: Vec<StreamTrace>,
    /// Of the streams' times, only every so many are kept.
    stride: u32,
    latest: Vec<TraceRow>,
    shown: (Nanos, u64),
    /// When it broke off, where it did.
    broke_off: Nanos,
    /// The receiver's account.
    pub(crate) received: Option<Received>,
    /// The sender's account.
    pub(crate) sent: Option<Sent>,
}

/// A transfer as it goes, for a person.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since the first byte might leave.
    pub at: Nanos,
    /// Payload bytes that are known to have arrived.
    pub bytes: u64,
    /// Bits per second since the last progress.
    pub latest_bps: f64,
    /// Bits per second since the start.
    pub mean_bps: f64,
    /// Segments sent again, all streams.
    pub retransmits: u64,
    /// Congestion windows, all streams, bytes.
    pub cwnd_bytes: u64,
}

impl Account {
    /// Nothing yet, of so many streams, in samples of `interval`.
    pub(crate) fn new(interval: Nanos, streams: u16) -> Self {
        let traces =
            (0..streams).map(|stream| StreamTrace { stream: stream.into(), ..StreamTrace::default() });
        Self {
            interval,
            arrived: Vec::new(),
            traces: traces.collect(),
            stride: 1,
            latest: Vec::new(),
            shown: (Nanos::ZERO, 0),
            broke_off: Nanos::MAX,
            received: None,
            sent: None,
        }
    }

    /// Adds what arrived. False, and nothing is added, where it would have arrived later than `now` after the
    /// start, seconds beyond what clocks may differ by.
    #[must_use]
    pub(crate) fn add_arrivals(&mut self, arrivals: &[Arrival], now: Nanos) -> bool {
        let most = now.after(AHEAD).0 / self.interval.0;
        if arrivals.iter().any(|arrival| u64::from(arrival.index) > most) {
            return false;
        }
        for arrival in arrivals {
            let index = arrival.index as usize;
            if self.arrived.len() <= index {
                self.arrived.resize(index + 1, 0);
            }
            self.arrived[index] = self.arrived[index].saturating_add(arrival.bytes);
        }
        true
    }

    /// It broke off `at` so long after the start, when `acknowledged` bytes of payload had reached the far host: what
    /// the receiver did not live to tell of is added after its last report.
    pub(crate) fn break_off(&mut self, acknowledged: u64, at: Nanos) {
        let untold = acknowledged.saturating_sub(self.bytes());
        if untold > 0 {
            self.arrived.push(untold);
        }
        self.broke_off = at;
    }

    /// Adds what the sender's kernel said. Rows of streams that there are not are left out.
    pub(crate) fn add_trace(&mut self, rows: &[TraceRow]) {
        for row in rows {
            let Some(trace) = self.traces.get_mut(usize::from(row.stream)) else { continue };
            match self.latest.iter_mut().find(|latest| latest.stream == row.stream) {
                Some(latest) => *latest = *row,
                None => self.latest.push(*row),
            }
            let tick = row.at.0 / self.interval.0;
            if !tick.is_multiple_of(u64::from(self.stride)) {
                continue;
            }
            trace.t_s.push(row.at.as_secs_f64());
            trace.cwnd_bytes.push(row.cwnd);
            trace.srtt_s.push(row.srtt.as_secs_f64());
            trace.retransmits.push(row.retransmits);
            trace.pacing_bps.push(row.pacing);
        }
        if self.traces.iter().map(|trace| trace.t_s.len()).sum::<usize>() > MOST_ROWS {
            self.thin();
        }
    }

    /// Keeps every second row of every stream.
    fn thin(&mut self) {
        fn every_second<T: Copy>(column: &mut Vec<T>) {
            *column = column.iter().copied().step_by(2).collect();
        }
        self.stride *= 2;
        for trace in &mut self.traces {
            every_second(&mut trace.t_s);
            every_second(&mut trace.cwnd_bytes);
            every_second(&mut trace.srtt_s);
            every_second(&mut trace.retransmits);
            every_second(&mut trace.pacing_bps);
        }
    }

    /// Bytes that are known to have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.arrived.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Where the last sample ends.
    pub(crate) fn sampled(&self) -> Nanos {
        Nanos(self.interval.0.saturating_mul(self.arrived.len() as u64)).min(self.broke_off)
    }

    /// Segments sent again, as far as is known.
    pub(crate) fn retransmits(&self) -> Option<u64> {
        let traced = (!self.latest.is_empty()).then(|| self.latest.iter().map(|row| row.retransmits).sum());
        self.sent.as_ref().map(|sent| sent.retransmits).or(traced)
    }

    /// The samples of a transfer that took `duration`: the last ends with it.
    pub(crate) fn samples(&self, duration: Nanos) -> Vec<(f64, u64)> {
        let count = usize::try_from(duration.0.div_ceil(self.interval.0)).unwrap_or(usize::MAX);
        // Bounded by what has arrived: a duration that nothing was sampled of adds no more than a day's worth.
        let count = count.min(self.arrived.len() + MOST_SILENT).max(self.arrived.len());
        let end = |index: usize| Nanos(self.interval.0 * (index as u64 + 1)).min(duration);
        (0..count)
            .map(|index| (end(index).as_secs_f64(), self.arrived.get(index).copied().unwrap_or(0)))
            .collect()
    }

    /// The streams as the sender's kernel showed them; none where it never did.
    pub(crate) fn into_traces(self) -> Vec<StreamTrace> {
        self.traces.into_iter().filter(|trace| !trace.t_s.is_empty()).collect()
    }

    /// How it goes, `at` so long after the start.
    pub(crate) fn progress(&mut self, at: Nanos) -> Progress {
        let bytes = self.bytes();
        let (before, had) = std::mem::replace(&mut self.shown, (at, bytes));
        let rate = |bytes: u64, time: Nanos| match time.as_secs_f64() {
            time if time > 0.0 => bytes as f64 * 8.0 / time,
            _ => 0.0,
        };
        Progress {
            at,
            bytes,
            latest_bps: rate(bytes.saturating_sub(had), at.since(before)),
            mean_bps: rate(bytes, at),
            retransmits: self.retransmits().unwrap_or(0),
            cwnd_bytes: self.latest.iter().map(|row| row.cwnd).sum(),
        }
    }
}

/// How much later than now an arrival may claim to be: the error of the clocks' offset, and then some.
const AHEAD: Nanos = Nanos(10_000_000_000);

/// Rows of all streams that are kept: 10 streams at 100 ms for 17 minutes, 2 MB of record.
const MOST_ROWS: usize = 100_000;

/// Samples without a byte that may follow the last that has some: a day of the shortest.
const MOST_SILENT: usize = 8_640_000;

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Nanos = Nanos(100_000_000);

    fn row(stream: u16, tick: u64) -> TraceRow {
        let at = Nanos(INTERVAL.0 * tick);
        TraceRow { stream, at, cwnd: 10, srtt: Nanos(5), retransmits: tick, pacing: None }
    }

    #[test]
    fn arrivals_of_one_interval_add_up_and_gaps_are_zero() {
        let mut account = Account::new(INTERVAL, 1);
        let now = Nanos(1_000_000_000);
        assert!(account.add_arrivals(&[Arrival { index: 2, bytes: 5 }, Arrival { index: 0, bytes: 1 }], now));
        assert!(account.add_arrivals(&[Arrival { index: 2, bytes: 5 }], now));
        assert_eq!(account.bytes(), 11);
        assert_eq!(account.samples(Nanos(250_000_000)), [(0.1, 1), (0.2, 0), (0.25, 10)]);
        assert_eq!(account.samples(Nanos(400_000_000)).len(), 4);
    }

    #[test]
    fn arrivals_from_the_future_are_refused() {
        let mut account = Account::new(INTERVAL, 1);
        assert!(!account.add_arrivals(&[Arrival { index: u32::MAX, bytes: 5 }], Nanos(1)));
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn what_was_acknowledged_before_it_broke_off_is_counted() {
        let mut account = Account::new(INTERVAL, 1);
        account.break_off(1000, Nanos(30_000_000));
        assert_eq!((account.bytes(), account.sampled()), (1000, Nanos(30_000_000)));
        assert_eq!(account.samples(account.sampled()), [(0.03, 1000)]);
    }

    #[test]
    fn what_the_receiver_told_of_is_not_counted_twice() {
        let mut account = Account::new(INTERVAL, 1);
        assert!(account.add_arrivals(&[Arrival { index: 0, bytes: 600 }], INTERVAL));
        account.break_off(1000, Nanos(2_000_000_000));
        assert_eq!(account.samples(account.sampled()), [(0.1, 600), (0.2, 400)]);
        account.break_off(900, Nanos(2_000_000_000));
        assert_eq!(account.bytes(), 1000);
    }

    #[test]
    fn long_traces_are_thinned_evenly() {
        let mut account = Account::new(INTERVAL, 512);
        for tick in 0..600 {
            let rows: Vec<_> = (0..512).map(|stream| row(stream, tick)).collect();
            account.add_trace(&rows);
        }
        account.add_trace(&[row(512, 0)]);
        assert_eq!(account.retransmits(), Some(512 * 599));
        let traces = account.into_traces();
        assert_eq!(traces.len(), 512);
        assert!(traces.iter().map(|trace| trace.t_s.len()).sum::<usize>() <= MOST_ROWS);
        let steps: Vec<_> = traces[0].t_s.windows(2).map(|pair| (pair[1] - pair[0]).to_bits()).collect();
        assert!(steps.len() > 70);
        let even = |at: usize| (traces[0].t_s[at] * 10.0 / 4.0 - at as f64).abs() < 1e-6;
        assert!((0..traces[0].t_s.len()).all(even), "{:?}", traces[0].t_s);
    }

    #[test]
    fn progress_counts_from_the_last_one() {
        let mut account = Account::new(INTERVAL, 1);
        assert!(account.add_arrivals(&[Arrival { index: 0, bytes: 1000 }], Nanos(0)));
        assert_eq!(account.progress(Nanos(1_000_000_000)).latest_bps, 8000.0);
        let next = account.progress(Nanos(2_000_000_000));
        assert_eq!((next.latest_bps, next.mean_bps), (0.0, 4000.0));
    }
}
