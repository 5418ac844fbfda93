//! Two endpoints that several threads use at once, as an application with `FI_THREAD_SAFE` does.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::thread;

use farlink_host::clock::monotonic;
use farlink_wire::quantity::Nanos;

use super::*;
use crate::bindings::{fi_cq_tagged_entry, fid_av, fid_cq};
use crate::driver::tests::settings;
use crate::{message, tagged};

mod operations;

/// An endpoint, and what is bound to it.
struct Side {
    endpoint: *mut fid_ep,
    vector: *mut fid_av,
    queue: *mut fid_cq,
    /// How often operations ended, by their contexts.
    ended: Vec<AtomicU32>,
}

// SAFETY: libfabric's objects are for all threads of an application.
unsafe impl Sync for Side {}

const CALLS: Calls = Calls { message: &message::TABLE, tagged: &tagged::TABLE };
const THREADS: usize = 4;
const EACH: usize = 150;
/// Messages of a thread that are under way, at most.
const AT_ONCE: usize = 8;
const SIZES: [usize; 6] = [8, 0, 700, 20_000, 100_000, 3000];

/// What a message says.
fn content(side: usize, thread: usize, nth: usize) -> Vec<u8> {
    let len = SIZES[(nth + thread) % SIZES.len()];
    (0..len).map(|at| (at * 7 + nth * 31 + thread * 5 + side) as u8).collect()
}

/// One in seven is copied before the call returns, and never heard of.
fn is_injected(thread: usize, nth: usize) -> bool {
    nth % 7 == 3 && SIZES[(nth + thread) % SIZES.len()] <= 8
}

/// By which an operation is known, from 1 on.
fn context(thread: usize, nth: usize, sends: bool) -> usize {
    1 + 2 * (thread * EACH + nth) + usize::from(sends)
}

impl Side {
    fn open(variables: &[(&str, &str)], flags: u64) -> Self {
        let none = Context(ptr::null_mut());
        let driver = Driver::with(settings(variables)).unwrap();
        let (mut endpoint, mut vector, mut queue) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let flags = fi::FI_COMPLETION | flags;
        Endpoint::over(driver, &CALLS, fi::FI_TAGGED, flags, flags, none)
            .hand_over(&raw mut endpoint)
            .unwrap();
        AddressVector::open(&Default::default(), none).unwrap().hand_over(&raw mut vector).unwrap();
        CompletionQueue::open(&Default::default(), 0, none).unwrap().hand_over(&raw mut queue).unwrap();
        let ended = (0..=2 * THREADS * EACH).map(|_| AtomicU32::new(0)).collect();
        for (to, flags) in [(vector.cast(), 0), (queue.cast(), fi::FI_TRANSMIT | fi::FI_RECV)] {
            // SAFETY: both were opened just now.
            assert_eq!(unsafe { bind(endpoint.cast(), to, flags) }, 0);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { control(endpoint.cast(), fi::FI_ENABLE as c_int, ptr::null_mut()) }, 0);
        Self { endpoint, vector, queue, ended }
    }

    fn meet(&self, other: &Self) {
        // SAFETY: it is open.
        let vector = unsafe { AddressVector::of(self.vector) }.unwrap();
        // SAFETY: as above.
        let endpoint = unsafe { Endpoint::of(other.endpoint) }.unwrap();
        assert_eq!(vector.addresses().insert(*endpoint.driver.address()), Ok(0));
    }

    /// Posts until that is taken.
    fn post(&self, mut post: impl FnMut(*mut fid_ep) -> isize) {
        loop {
            match post(self.endpoint) {
                0 => return,
                error => assert_eq!(error, -(fi::FI_EAGAIN as isize)),
            }
            self.poll(false);
        }
    }

    /// Reads what has ended, and waits for it a while where it is to sleep.
    fn poll(&self, sleeps: bool) {
        let mut entries = [fi_cq_tagged_entry::default(); 5];
        let into = entries.as_mut_ptr().cast();
        // SAFETY: it is open.
        let queue = unsafe { self.queue.as_ref() }.unwrap();
        // SAFETY: all objects have a table.
        let table = unsafe { queue.ops.as_ref() }.unwrap();
        let read = if sleeps {
            // SAFETY: there is room for as many.
            unsafe { table.sread.unwrap()(self.queue, into, entries.len(), ptr::null(), 20) }
        } else {
            // SAFETY: as above.
            unsafe { table.read.unwrap()(self.queue, into, entries.len()) }
        };
        if read == -(fi::FI_EAGAIN as isize) {
            return;
        }
        let count = usize::try_from(read).unwrap_or_else(|_| panic!("{read}"));
        for entry in &entries[..count] {
            self.ended[entry.op_context.addr()].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn has_ended(&self, context: usize) -> bool {
        self.ended[context].load(Ordering::Relaxed) > 0
    }

    /// What a thread does: messages there and back, which are all there at its end.
    fn talk(&self, side: usize, thread: usize) {
        let began = monotonic();
        let messages: Vec<Vec<u8>> = (0..EACH).map(|nth| content(side, thread, nth)).collect();
        let mut rooms: Vec<Vec<u8>> =
            (0..EACH).map(|nth| vec![0; content(1 - side, thread, nth).len()]).collect();
        let has_ended = |nth: usize| {
            let sent = is_injected(thread, nth) || self.has_ended(context(thread, nth, true));
            sent && self.has_ended(context(thread, nth, false))
        };
        for nth in 0..EACH + AT_ONCE {
            if nth < EACH {
                let tag = (thread * EACH + nth) as u64;
                let room = &mut rooms[nth];
                let received = ptr::without_provenance_mut(context(thread, nth, false));
                // SAFETY: the room stays where it is until it is read below.
                self.post(|endpoint| unsafe {
                    tagged::TABLE.recv.unwrap()(
                        endpoint,
                        room.as_mut_ptr().cast(),
                        room.len(),
                        ptr::null_mut(),
                        NOWHERE,
                        tag,
                        0,
                        received,
                    )
                });
                let (at, len) = (messages[nth].as_ptr().cast(), messages[nth].len());
                let sent = ptr::without_provenance_mut(context(thread, nth, true));
                self.post(|endpoint| {
                    if is_injected(thread, nth) {
                        // SAFETY: it is copied.
                        return unsafe { tagged::TABLE.inject.unwrap()(endpoint, at, len, 0, tag) };
                    }
                    // SAFETY: the message stays where it is until this returns.
                    unsafe { tagged::TABLE.send.unwrap()(endpoint, at, len, ptr::null_mut(), 0, tag, sent) }
                });
            }
            while nth >= AT_ONCE && !has_ended(nth - AT_ONCE) {
                assert!(
                    monotonic().since(began) < LIMIT,
                    "thread {thread} of {side} waits for {}",
                    nth - AT_ONCE
                );
                self.poll(thread % 2 == 1);
            }
        }
        for (nth, room) in rooms.iter().enumerate() {
            assert!(*room == content(1 - side, thread, nth), "{nth} of thread {thread}");
        }
    }

    fn close(self) {
        for fid in [self.endpoint.cast::<fid>(), self.vector.cast(), self.queue.cast()] {
            // SAFETY: it is open.
            let head = unsafe { fid.as_ref() }.unwrap();
            // SAFETY: all objects have a table.
            let close = unsafe { head.ops.as_ref() }.unwrap().close.unwrap();
            // SAFETY: nobody uses it any more.
            assert_eq!(unsafe { close(fid) }, 0);
        }
    }
}

const LIMIT: Nanos = Nanos(120_000_000_000);

#[test]
fn several_threads_post_and_poll_at_once() {
    let cases = [
        ("dc", "0", 0),
        ("xrc", "1", 0),
        ("rc", "0", fi::FI_DELIVERY_COMPLETE),
        ("ud", "1", fi::FI_DELIVERY_COMPLETE),
    ];
    for (transport, memory, flags) in cases {
        let variables = [
            ("FARLINK_TRANSPORT", transport),
            ("FARLINK_SHM", memory),
            ("FARLINK_INTERFACE", "lo"),
            ("FARLINK_DCIS", "1"),
        ];
        let sides = [0, 1].map(|_| Side::open(&variables, flags));
        sides[0].meet(&sides[1]);
        sides[1].meet(&sides[0]);
        thread::scope(|scope| {
            for (side, thread) in (0..2).flat_map(|side| (0..THREADS).map(move |thread| (side, thread))) {
                let sides = &sides;
                scope.spawn(move || sides[side].talk(side, thread));
            }
        });
        for side in &sides {
            for (thread, nth) in (0..THREADS).flat_map(|thread| (0..EACH).map(move |nth| (thread, nth))) {
                let times = |sends| side.ended[context(thread, nth, sends)].load(Ordering::Relaxed);
                assert_eq!((times(false), times(true)), (1, u32::from(!is_injected(thread, nth))));
            }
        }
        sides.into_iter().for_each(Side::close);
    }
}
