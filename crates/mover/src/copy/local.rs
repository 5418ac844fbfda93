//! Both ends in one process: a copy on one host, by the same code.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use farlink_host::readiness::Wake;
use farlink_wire::message::Message;
use farlink_wire::message::copy::Request;

use super::CopyError;
use super::allowed::Allowed;
use super::serve::serve;
use crate::budget::Budget;
use crate::chain;
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
    let (line, stop) = (Arc::new(Pairs(Mutex::new(Some(streams)))), Wake::new().map_err(failed)?);
    let mut data = Vec::new();
    for number in 0..u32::from(request.streams) {
        data.push((number, line.another(number, &stop)?));
    }
    control.greet()?;
    theirs.greet()?;
    let (request, pairs) = (request.clone(), Arc::clone(&line));
    let far_end = thread::Builder::new().name("farlink-far-end".to_owned());
    let work = move || {
        let Ok(stop) = Wake::new() else { return };
        let (allowed, budget) = (Allowed::everything(), Budget::unbounded());
        let dismiss = || drop(pairs.far_end().take());
        if let Err(error) = serve(&mut theirs, &request, incoming, dismiss, &allowed, &budget, &[&stop]) {
            let _ = theirs.send(&Message::Failed(chain(&error).into()));
        }
        theirs.part();
    };
    far_end.spawn(work).map_err(|source| CopyError::System { attempt: "start a thread", source })?;
    Ok(Opened { control, data, late: None, line, early: VecDeque::new() })
}

/// Connections within the process, to the far end for as long as it takes them.
#[derive(Debug)]
struct Pairs(Mutex<Option<Sender<(u32, Channel)>>>);

impl Pairs {
    fn far_end(&self) -> MutexGuard<'_, Option<Sender<(u32, Channel)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line for Pairs {
    fn another(&self, number: u32, _stop: &Wake) -> Result<Channel, CopyError> {
        let failed = |source| CopyError::System { attempt: "connect the two ends", source };
        let (near, far) = UnixStream::pair().map_err(failed)?;
        let far = Channel::over_unix(far).map_err(failed)?;
        // A far end that is gone takes nothing more.
        let _ = self.far_end().as_ref().map(|far_end| far_end.send((number, far)));
        Channel::over_unix(near).map_err(failed)
    }
}
