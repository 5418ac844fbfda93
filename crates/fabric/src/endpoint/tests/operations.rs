//! What one thread asks of an endpoint through its tables, and is told.

use farlink_host::clock::monotonic;

use super::*;
use crate::bindings::{fi_cntr_attr, fi_cq_err_entry, fi_msg, fi_msg_tagged, fid_cntr, iovec};
use crate::message;

fn sides() -> [Side; 2] {
    let variables = [("FARLINK_TRANSPORT", "rc"), ("FARLINK_SHM", "0"), ("FARLINK_INTERFACE", "lo")];
    let sides = [0, 1].map(|_| Side::open(&variables, 0));
    sides[0].meet(&sides[1]);
    sides[1].meet(&sides[0]);
    sides
}

fn named(context: usize) -> *mut c_void {
    ptr::without_provenance_mut(context)
}

impl Side {
    /// The next that ended, or failed.
    fn next(&self) -> Result<fi_cq_tagged_entry, fi_cq_err_entry> {
        let (mut entry, mut error) = (fi_cq_tagged_entry::default(), fi_cq_err_entry::default());
        // SAFETY: it is open.
        let queue = unsafe { self.queue.as_ref() }.unwrap();
        // SAFETY: all objects have a table.
        let table = unsafe { queue.ops.as_ref() }.unwrap();
        let began = monotonic();
        loop {
            assert!(monotonic().since(began) < LIMIT, "nothing ends");
            // SAFETY: there is room for one.
            match unsafe { table.read.unwrap()(self.queue, (&raw mut entry).cast(), 1) } {
                1 => return Ok(entry),
                code if code == -(fi::FI_EAVAIL as isize) => break,
                code => assert_eq!(code, -(fi::FI_EAGAIN as isize)),
            }
        }
        // SAFETY: as above.
        assert_eq!(unsafe { table.readerr.unwrap()(self.queue, &raw mut error, 0) }, 1);
        Err(error)
    }

    /// Sends a message with a tag, or without.
    fn send(&self, bytes: &[u8], tag: Option<u64>) {
        let (at, len) = (bytes.as_ptr().cast(), bytes.len());
        let (endpoint, none) = (self.endpoint, ptr::null_mut());
        let sent = match tag {
            // SAFETY: the bytes stay until it has ended.
            Some(tag) => unsafe { tagged::TABLE.send.unwrap()(endpoint, at, len, none, 0, tag, named(99)) },
            // SAFETY: as above.
            None => unsafe { message::TABLE.send.unwrap()(endpoint, at, len, none, 0, named(99)) },
        };
        assert_eq!(sent, 0);
        assert_eq!(self.next().unwrap().op_context, named(99));
    }

    /// Wants a message without a tag.
    fn want(&self, room: &mut [u8], context: usize) {
        let (at, len) = (room.as_mut_ptr().cast(), room.len());
        let (none, context) = (ptr::null_mut(), named(context));
        // SAFETY: the room stays until it has ended.
        let wanted = unsafe { message::TABLE.recv.unwrap()(self.endpoint, at, len, none, NOWHERE, context) };
        assert_eq!(wanted, 0);
    }

    /// As [`want`](Self::want), with flags.
    fn want_with(&self, room: &mut [u8], context: usize, flags: u64) -> isize {
        let part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let context = named(context);
        let message =
            fi_msg { msg_iov: &raw const part, iov_count: 1, addr: NOWHERE, context, ..Default::default() };
        // SAFETY: the room stays until it has ended.
        unsafe { message::TABLE.recvmsg.unwrap()(self.endpoint, &raw const message, flags) }
    }

    /// Asks of a message with a tag.
    fn ask(&self, tag: u64, context: usize, flags: u64) -> isize {
        let context = named(context);
        let message = fi_msg_tagged { addr: NOWHERE, tag, context, ..Default::default() };
        // SAFETY: no memory is lent.
        unsafe { tagged::TABLE.recvmsg.unwrap()(self.endpoint, &raw const message, flags) }
    }

    /// Asks until there is such a message.
    fn find(&self, tag: u64, context: usize, flags: u64) {
        loop {
            assert_eq!(self.ask(tag, context, flags), 0);
            match self.next() {
                Ok(found) => {
                    assert_eq!((found.op_context, found.tag), (named(context), tag));
                    return;
                }
                Err(error) => assert_eq!((error.err, error.op_context), (fi::FI_ENOMSG, named(context))),
            }
        }
    }

    fn count_by(&self) -> *mut fid_cntr {
        let mut counter = ptr::null_mut();
        let opened = Counter::open(&fi_cntr_attr::default(), Context(ptr::null_mut())).unwrap();
        opened.hand_over(&raw mut counter).unwrap();
        // SAFETY: both are open.
        let bound = unsafe { bind(self.endpoint.cast(), counter.cast(), fi::FI_SEND | fi::FI_RECV) };
        assert_eq!(bound, 0);
        counter
    }
}

/// How many ended by a counter, and how many failed.
fn counted(counter: *mut fid_cntr) -> (u64, u64) {
    // SAFETY: it is open.
    let head = unsafe { counter.as_ref() }.unwrap();
    // SAFETY: all objects have a table.
    let table = unsafe { head.ops.as_ref() }.unwrap();
    // SAFETY: as above.
    let ended = unsafe { table.read.unwrap()(counter) };
    // SAFETY: as above.
    (ended, unsafe { table.readerr.unwrap()(counter) })
}

fn close_counter(counter: *mut fid_cntr) {
    // SAFETY: nobody uses it any more.
    drop(unsafe { Counter::take_back(counter.cast()) }.unwrap());
}

#[test]
fn a_counter_counts_what_was_sent_what_came_and_what_was_cut() {
    let [left, right] = sides();
    let counter = right.count_by();
    assert_eq!(counted(counter), (0, 0));
    let mut room = [0; 8];
    right.want(&mut room, 1);
    left.send(&[7; 8], None);
    assert_eq!(right.next().unwrap().len, 8);
    assert_eq!(counted(counter), (1, 0));
    right.send(&[7; 8], None);
    assert_eq!(counted(counter), (2, 0));
    right.want(&mut room[..3], 2);
    left.send(&[9; 8], None);
    let error = right.next().unwrap_err();
    assert_eq!((error.err, error.len, error.olen), (fi::FI_ETRUNC as c_int, 3, 5));
    assert_eq!((counted(counter), room), ((2, 1), [9, 9, 9, 7, 7, 7, 7, 7]));
    [left, right].into_iter().for_each(Side::close);
    close_counter(counter);
}

#[test]
fn a_buffer_for_several_takes_messages_until_too_little_of_it_is_left() {
    let [left, right] = sides();
    let (mut room, least) = ([0_u8; 200], 64_usize);
    let (level, name) = (fi::FI_OPT_ENDPOINT as c_int, fi::FI_OPT_MIN_MULTI_RECV as c_int);
    let (of, at) = (right.endpoint.cast(), (&raw const least).cast());
    // SAFETY: there is a number.
    assert_eq!(unsafe { TABLE.setopt.unwrap()(of, level, name, at, size_of::<usize>()) }, 0);
    assert_eq!(right.want_with(&mut room, 4, fi::FI_MULTI_RECV), 0);
    for (at, is_last) in [(0, false), (80, true)] {
        left.send(&[1 + at; 80], None);
        let came = right.next().unwrap();
        assert_eq!(
            (came.op_context, came.len, came.buf),
            (named(4), 80, room[at.into()..].as_mut_ptr().cast())
        );
        assert_eq!(came.flags & fi::FI_MULTI_RECV != 0, is_last);
    }
    assert_eq!((room[..80].to_vec(), room[80..160].to_vec()), (vec![1; 80], vec![81; 80]));
    // What comes later needs another.
    left.send(&[5; 8], None);
    let mut other = [0; 8];
    right.want(&mut other, 5);
    assert_eq!(right.next().unwrap().op_context, named(5));
    assert_eq!((other, &room[160..]), ([5; 8], &[0; 40][..]));
    [left, right].into_iter().for_each(Side::close);
}

#[test]
fn what_is_discarded_does_not_come_again_and_what_is_not_does() {
    let [left, right] = sides();
    [1, 2, 3].iter().for_each(|tag| left.send(&[*tag; 8], Some((*tag).into())));
    right.find(1, 1, fi::FI_PEEK | fi::FI_DISCARD);
    assert_eq!(right.ask(1, 1, fi::FI_PEEK), 0);
    assert_eq!(right.next().unwrap_err().err, fi::FI_ENOMSG);
    right.find(2, 2, fi::FI_PEEK | fi::FI_CLAIM);
    assert_eq!(right.ask(2, 2, fi::FI_CLAIM | fi::FI_DISCARD), 0);
    assert_eq!(right.next().unwrap().op_context, named(2));
    // It is gone, and without a claim there is nothing to be dropped.
    assert_eq!(right.ask(2, 2, fi::FI_CLAIM | fi::FI_DISCARD), -(fi::FI_EINVAL as isize));
    assert_eq!(right.ask(3, 3, fi::FI_DISCARD), -(fi::FI_EINVAL as isize));
    right.find(3, 3, fi::FI_PEEK);
    [left, right].into_iter().for_each(Side::close);
}

#[test]
fn what_is_asked_of_messages_with_tags_is_refused_of_others_which_wait_on() {
    let [left, right] = sides();
    left.send(&[6; 8], None);
    let mut room = [0; 8];
    for flags in [fi::FI_PEEK, fi::FI_PEEK | fi::FI_CLAIM, fi::FI_CLAIM, fi::FI_DISCARD] {
        assert_eq!(right.want_with(&mut room[..1], 6, flags), -(fi::FI_EBADFLAGS as isize));
    }
    right.want(&mut room, 7);
    assert_eq!((right.next().unwrap().op_context, room), (named(7), [6; 8]));
    [left, right].into_iter().for_each(Side::close);
}

#[test]
fn a_receive_that_is_taken_back_has_failed_and_takes_nothing() {
    let [left, right] = sides();
    let (mut room, mut other) = ([0; 8], [0; 8]);
    right.want(&mut room, 8);
    // SAFETY: it is open.
    let take_back = || unsafe { TABLE.cancel.unwrap()(right.endpoint.cast(), named(8)) };
    assert_eq!(take_back(), 0);
    let error = right.next().unwrap_err();
    assert_eq!((error.err, error.op_context), (fi::FI_ECANCELED, named(8)));
    assert_eq!(take_back(), -(fi::FI_ENOENT as isize));
    right.want(&mut other, 9);
    left.send(&[4; 8], None);
    assert_eq!(right.next().unwrap().op_context, named(9));
    assert_eq!((room, other), ([0; 8], [4; 8]));
    [left, right].into_iter().for_each(Side::close);
}
