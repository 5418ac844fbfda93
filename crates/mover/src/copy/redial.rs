//! Data connections that come while the copy goes on with those that it has: some that were on their way when it began, and some in place
//! of those that were lost, dialled in threads of their own, as the far end may take its time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use farlink_host::readiness::Wake;

use super::CopyError;
use super::lost::Lost;
use crate::channel::Channel;
use crate::dial::{DialError, Late};
use crate::far::opened::Line;

/// Dials in place of connections that were lost. Dropped, it gives up what is still being dialled, and waits for that.
#[derive(Debug)]
pub(super) struct Redial {
    line: Arc<dyn Line>,
    /// Raised when a connection is there, or cannot be had.
    wake: Wake,
    /// Raised when none is wanted any more.
    halt: Wake,
    /// What is to be dialled when there is a thread for it.
    waiting: VecDeque<Asked>,
    threads: Vec<JoinHandle<()>>,
    /// Those that were begun and not taken.
    going: usize,
    /// And those that were on their way.
    late: usize,
    done: (Sender<Redialled>, Receiver<Redialled>),
}

/// A connection that is to take the place of another.
#[derive(Debug)]
struct Asked {
    lost: Lost,
    number: u32,
}

/// What came of dialling.
#[derive(Debug)]
pub(super) struct Redialled {
    /// The connection that was lost, where this one takes its place.
    pub(super) lost: Option<Lost>,
    /// The number of this one.
    pub(super) number: u32,
    /// The connection.
    pub(super) outcome: Result<Channel, CopyError>,
}

impl Redial {
    /// By `line`; `wake` is raised when there is something to take.
    pub(super) fn new(line: Arc<dyn Line>, wake: Wake) -> Result<Self, CopyError> {
        let halt = Wake::new().map_err(CopyError::wait)?;
        let (waiting, threads) = (VecDeque::new(), Vec::new());
        Ok(Self { line, wake, halt, waiting, threads, going: 0, late: 0, done: channel() })
    }

    /// Has connection `number` dialled in place of `lost`.
    pub(super) fn ask(&mut self, lost: Lost, number: u32) {
        self.waiting.push_back(Asked { lost, number });
        self.begin();
    }

    /// Has those taken that are `late`, when they stand; how many they are.
    pub(super) fn expect(&mut self, late: Late) -> usize {
        let mut expected = late.streams();
        let count = expected.len();
        self.late += count;
        let (halt, wake, done) = (self.halt.clone(), self.wake.clone(), self.done.0.clone());
        let tell = move |stream: u16, outcome| {
            let _ = done.send(Redialled { lost: None, number: stream.into(), outcome });
            wake.raise();
        };
        let failed = tell.clone();
        let refused = expected.clone();
        let work = move || {
            let mut told = |stream, outcome: Result<Channel, DialError>| {
                expected.retain(|each| *each != stream);
                tell(stream, outcome.map_err(CopyError::from));
            };
            // Who panics is not waited for without end.
            if catch_unwind(AssertUnwindSafe(|| late.run(&halt, &mut told))).is_err() {
                expected.into_iter().for_each(|stream| tell(stream, Err(CopyError::Panicked)));
            }
        };
        match Builder::new().name("farlink-dial".to_owned()).spawn(work) {
            Ok(thread) => self.threads.push(thread),
            Err(source) => {
                let error = || CopyError::System { attempt: "start a thread", source: source.kind().into() };
                refused.into_iter().for_each(|stream| failed(stream, Err(error())));
            }
        }
        count
    }

    /// What came of it since this was asked last.
    pub(super) fn take(&mut self) -> Vec<Redialled> {
        let done: Vec<_> = self.done.1.try_iter().collect();
        let late = done.iter().filter(|each| each.lost.is_none()).count();
        self.late -= late;
        self.going -= done.len() - late;
        self.begin();
        done
    }

    /// Whether any is still being dialled, or was not taken.
    pub(super) fn is_going(&self) -> bool {
        self.going + self.late > 0 || !self.waiting.is_empty()
    }

    /// Begins those that there are threads for.
    fn begin(&mut self) {
        self.threads.retain(|thread| !thread.is_finished());
        while self.going < MOST_AT_ONCE
            && let Some(asked) = self.waiting.pop_front()
        {
            self.going += 1;
            let (line, halt, wake) = (Arc::clone(&self.line), self.halt.clone(), self.wake.clone());
            let done = self.done.0.clone();
            let tell = move |outcome| {
                // Nobody waits for it where the copy has ended.
                let _ = done.send(Redialled { lost: Some(asked.lost), number: asked.number, outcome });
                wake.raise();
            };
            let failed = tell.clone();
            let work = move || {
                // Who panics is not waited for without end.
                let another = catch_unwind(AssertUnwindSafe(|| line.another(asked.number, &halt)));
                tell(another.unwrap_or(Err(CopyError::Panicked)));
            };
            match Builder::new().name("farlink-dial".to_owned()).spawn(work) {
                Ok(thread) => self.threads.push(thread),
                Err(source) => failed(Err(CopyError::System { attempt: "start a thread", source })),
            }
        }
    }
}

impl Drop for Redial {
    fn drop(&mut self) {
        self.halt.raise();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Connections that are dialled at a time: those of a path that broke come back together, and a far end that answers none has its peace.
const MOST_AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    use farlink_host::readiness::{Interest, Poller, Waited, wait_for};
    use farlink_wire::quantity::Nanos;

    use super::*;

    /// A far end that answers a call as soon as it was told to, and no sooner.
    #[derive(Debug)]
    struct Slow {
        answer: Wake,
        called: Mutex<Vec<u32>>,
    }

    impl Line for Slow {
        fn another(&self, number: u32, stop: &Wake) -> Result<Channel, CopyError> {
            self.called.lock().unwrap().push(number);
            assert_ne!(number, 4, "a line that has a defect");
            match wait_for(&self.answer, Interest::Read, stop, Nanos::MAX) {
                Ok(Waited::Ready) if number != 3 => {
                    Ok(Channel::over_unix(UnixStream::pair().unwrap().0).unwrap())
                }
                _ => Err(CopyError::NoStream { why: "nobody answers".to_owned() }),
            }
        }
    }

    fn redial() -> (Redial, Arc<Slow>, Wake) {
        let line = Arc::new(Slow { answer: Wake::new().unwrap(), called: Mutex::default() });
        let wake = Wake::new().unwrap();
        (Redial::new(Arc::<Slow>::clone(&line), wake.clone()).unwrap(), line, wake)
    }

    #[test]
    fn who_asks_does_not_wait_and_is_woken_when_there_is_an_answer() {
        let (mut redial, line, wake) = redial();
        redial.ask(Lost::of_far_side(0), 2);
        redial.ask(Lost::of_far_side(1), 3);
        assert!(redial.is_going() && redial.take().is_empty() && !wake.is_raised());
        line.answer.raise();
        let mut poller = Poller::new().unwrap();
        poller.add(&wake, 0, Interest::Read).unwrap();
        let mut found = Vec::new();
        while redial.is_going() {
            poller.wait(Nanos::MAX, &mut Vec::new()).unwrap();
            wake.lower();
            let done = redial.take().into_iter();
            found.extend(
                done.map(|each| (each.lost.map(|lost| lost.stream), each.number, each.outcome.is_ok())),
            );
        }
        found.sort_unstable();
        assert_eq!(found, [(Some(0), 2, true), (Some(1), 3, false)]);
    }

    #[test]
    fn a_defect_of_the_way_there_is_told_and_not_waited_for() {
        let (mut redial, _, wake) = redial();
        redial.ask(Lost::of_far_side(0), 4);
        let mut poller = Poller::new().unwrap();
        poller.add(&wake, 0, Interest::Read).unwrap();
        poller.wait(Nanos(20_000_000_000), &mut Vec::new()).unwrap();
        assert!(matches!(&redial.take()[..], [Redialled { outcome: Err(CopyError::Panicked), .. }]));
        assert!(!redial.is_going());
    }

    #[test]
    fn no_more_are_dialled_at_a_time_than_may_be_and_the_end_of_the_copy_ends_all() {
        let (mut redial, line, _) = redial();
        (0..100).for_each(|number| redial.ask(Lost::of_far_side(number), 100 + number));
        assert!(redial.take().is_empty() && redial.is_going());
        // It does not return while one is being dialled.
        drop(redial);
        assert!(line.called.lock().unwrap().len() <= MOST_AT_ONCE);
    }
}
