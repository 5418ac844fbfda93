use farlink_flow::fabric::operation::{Kind, Wanted};

use super::*;
use crate::address_vector::Addresses;
use crate::bindings as fi;
use crate::completion::Queue;
use crate::memory::Parts;
use crate::object::Context;
use crate::post::{Incoming, Notice, Outgoing};
use crate::progress::Progress;

/// As these variables say, in a job with a key of its own.
pub(crate) fn settings(set: &[(&str, &str)]) -> Settings {
    let key = "0a".repeat(32);
    let all = [&[("FARLINK_JOB_KEY", key.as_str())], set].concat();
    let value = |name| all.iter().rev().find(|(its, _)| *its == name).map(|(_, value)| (*value).into());
    Settings::from_variables(value).unwrap()
}

/// Two that know each other, and that no thread drives.
fn pair() -> [Arc<Driver>; 2] {
    let variables = [("FARLINK_TRANSPORT", "ud"), ("FARLINK_SHM", "0"), ("FARLINK_INTERFACE", "lo")];
    let pair = [0, 1].map(|_| Driver::with(settings(&variables)).unwrap());
    for (driver, other) in pair.iter().zip(pair.iter().rev()) {
        let addresses = Arc::<Addresses>::default();
        addresses.insert(*other.address()).unwrap();
        driver.call(|engine, _| engine.bind_addresses(addresses)).unwrap();
        let queue = Arc::new(Queue::new().unwrap());
        driver.call(|engine, _| engine.queues().bind(&queue, fi::FI_TRANSMIT | fi::FI_RECV)).unwrap();
        driver.enable().unwrap();
    }
    pair
}

/// Has a message of no bytes go from one to the other, whose application is told of it, and calls until it owes the acknowledgement.
fn owe(from: &Driver, to: &Driver) {
    let context = Context(std::ptr::null_mut());
    // SAFETY: no memory is lent.
    let parts = || unsafe { Parts::one(std::ptr::null(), 0) }.unwrap();
    let notice = Notice::Flags(0);
    let (wanted, kind) = (Wanted::Untagged, Kind::Untagged);
    let incoming = Incoming { from: None, wanted, parts: parts(), context, notice, several: false };
    to.want(|engine, now| engine.receive(now, incoming, 0)).unwrap();
    let outgoing = Outgoing { to: 0, kind, data: None, parts: parts(), context, notice, copied: false };
    from.post(|engine, now| engine.send(now, outgoing)).unwrap();
    while !to.engine.lock().unwrap().owes() {
        to.progress().unwrap();
    }
}

#[test]
fn the_progress_thread_drives_when_the_application_has_not_called_for_a_while() {
    let [here, there] = pair();
    let rounds = || here.engine.lock().unwrap().counts.rounds_of_thread;
    owe(&there, &here);
    // The application calls: nobody drives in its stead, or has its next call wake somebody.
    here.attend(Nanos(u64::MAX / 2));
    here.wake.raise();
    here.take_turn().unwrap();
    assert_eq!(rounds(), 0);
    assert!(!here.asleep.load(Ordering::Relaxed));
    here.leave();
    {
        // Nor does anybody wait for the end of a call that takes long, which drives, too.
        let _call = here.engine.lock().unwrap();
        here.take_turn().unwrap();
    }
    assert_eq!(rounds(), 0);
    here.leave();
    here.take_turn().unwrap();
    assert_eq!(rounds(), 1);

    for _ in 0..5 {
        owe(&there, &here);
        let before = rounds();
        // It does not call any more: the alarm is what wakes the thread, and what is left goes.
        let thread = Progress::start(&here).unwrap();
        while here.engine.lock().unwrap().owes() {
            std::thread::yield_now();
        }
        thread.stop();
        assert!(rounds() > before);
        here.stopping.store(false, Ordering::Relaxed);
    }
}
