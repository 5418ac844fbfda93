//! Something on the ssh that started a far end, now and then: data go beside it, and servers, firewalls and address translators end
//! connections on which nothing is said for long.

use std::io::{self, Write};
use std::sync::{Arc, PoisonError};
use std::thread;

use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::quantity::Nanos;

use super::callback::Line;

/// Says an empty line, which a far end passes over, as often as `every`, until `over` is raised or nobody hears it.
pub(super) fn start(line: &Line, over: &Wake, every: Nanos) -> io::Result<()> {
    let mut poller = Poller::new()?;
    poller.add(over, 0, Interest::Read)?;
    let (line, over) = (Arc::clone(line), over.clone());
    let murmur = move || {
        while poller.wait(every, &mut Vec::new()).is_ok() && !over.is_raised() {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(Ok(())) = line.as_mut().map(|line| line.write_all(b"\n")) else { return };
        }
    };
    thread::Builder::new().name("farlink-murmur".to_owned()).spawn(murmur).map(drop)
}

/// Half a minute: less than any of those waits.
pub(super) const EVERY: Nanos = Nanos(30_000_000_000);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn an_empty_line_is_said_now_and_then_until_it_is_over() {
        let mut far = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let line = Arc::new(Mutex::new(far.stdin.take()));
        let over = Wake::new().unwrap();
        start(&line, &over, Nanos(1_000_000)).unwrap();
        let mut said = [0; 3];
        let mut heard = far.stdout.take().unwrap();
        heard.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"\n\n\n");
        over.raise();
        line.lock().unwrap().take();
        // All ends that could say something are closed.
        heard.read_to_end(&mut Vec::new()).unwrap();
        assert!(far.wait().unwrap().success());
    }
}
