//! Both ends in one process: a copy on one host, by the same code.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use farlink_host::readiness::Wake;
use farlink_wire::message::Message;
use farlink_wire::message::copy::Request;

use super::CopyError;
use super::allowed::Allowed;
use super::serve::serve;
use crate::budget::Budget;
use crate::channel::Channel;
use crate::control::Control;
use crate::far::opened::{Line, Opened};

/// Starts the other end of `request` in this process.
pub(crate) fn open(request: &Request) -> Result<Opened, CopyError> {
    let failed = |source| CopyError::System { attempt: "connect the two ends", source };
    let (near, far) = UnixStream::pair().map_err(failed)?;
    let mut control = Control::new(Channel::over_unix(near).map_err(failed)?, Vec::new());
    let mut theirs = Control::new(Channel::over_unix(far).map_err(failed)?, Vec::new());
    let (streams, incoming) = channel();
    let (pairs, stop) = (Arc::new(Pairs(Mutex::new(Some(streams)))), Wake::new().map_err(failed)?);
    let mut data = Vec::new();
    for number in 0..u32::from(request.streams) {
        data.push((number, pairs.another(number)?));
    }
    control.greet()?;
    theirs.greet()?;
    let (request, its, its_stop) = (request.clone(), Arc::clone(&pairs), stop.clone());
    let far_end = thread::Builder::new().name("farlink-far-end".to_owned());
    let work = move || {
        let (allowed, budget) = (Allowed::everything_here(), Budget::unbounded());
        let dismiss = || drop(its.far_end().take());
        if let Err(error) = serve(&mut theirs, &request, incoming, dismiss, &allowed, &budget, &[&its_stop]) {
            let _ = theirs.send(&Message::Failed(error.refusal()));
        }
        theirs.part();
    };
    let far_end =
        far_end.spawn(work).map_err(|source| CopyError::System { attempt: "start a thread", source })?;
    let line = Arc::new(FarEnd { pairs, stop, thread: Some(far_end) });
    Ok(Opened { control, data, late: None, line, early: VecDeque::new() })
}

/// The other end. Dropped, it ends, and is waited for: what it writes would stay as it is where the process ended first.
#[derive(Debug)]
struct FarEnd {
    pairs: Arc<Pairs>,
    stop: Wake,
    thread: Option<JoinHandle<()>>,
}

impl Line for FarEnd {
    fn another(&self, number: u32, _stop: &Wake) -> Result<Channel, CopyError> {
        self.pairs.another(number)
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            // It panicked, and has said so itself.
            let _ = thread.join();
        }
    }
}

/// Connections within the process, to the far end for as long as it takes them.
#[derive(Debug)]
struct Pairs(Mutex<Option<Sender<(u32, Channel)>>>);

impl Pairs {
    fn far_end(&self) -> MutexGuard<'_, Option<Sender<(u32, Channel)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn another(&self, number: u32) -> Result<Channel, CopyError> {
        let failed = |source| CopyError::System { attempt: "connect the two ends", source };
        let (near, far) = UnixStream::pair().map_err(failed)?;
        let far = Channel::over_unix(far).map_err(failed)?;
        // A far end that is gone takes nothing more.
        let _ = self.far_end().as_ref().map(|far_end| far_end.send((number, far)));
        Channel::over_unix(near).map_err(failed)
    }
}
