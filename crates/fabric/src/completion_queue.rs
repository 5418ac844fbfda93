//! Completion queues, as the application reads them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use crate::address_vector::write_text;
use crate::bindings as fi;
use crate::bindings::{fi_addr_t, fi_cq_err_entry, fi_ops, fi_ops_cq, fid, fid_cq, fid_eq};
use crate::completion::{Completion, Queue};
use crate::drivers::check_wait;
use crate::entry::{Code, counted, done};
use crate::object::{self, Context, Object};
use crate::version::version;

/// One that the application opened.
#[repr(C)]
pub(crate) struct CompletionQueue {
    fid: fid_cq,
    queue: Arc<Queue>,
    format: Format,
    /// Whether its errors have room for what the application says of its memory for more about them.
    has_size: bool,
}

/// What is written of each completion: libfabric's structures have the fields of those before them, and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Context,
    Message,
    Data,
    Tagged,
}

// SAFETY: as the trait wants it.
unsafe impl Object for CompletionQueue {
    type Fid = fid_cq;
    const CLASS: u32 = fi::FI_CLASS_CQ;
}

impl CompletionQueue {
    /// Of an application that was built for `version` of the interface.
    pub(crate) fn open(attributes: &fi::fi_cq_attr, version: u32, context: Context) -> Result<Self, Code> {
        let format = match attributes.format {
            fi::FI_CQ_FORMAT_CONTEXT => Format::Context,
            fi::FI_CQ_FORMAT_MSG => Format::Message,
            fi::FI_CQ_FORMAT_DATA => Format::Data,
            fi::FI_CQ_FORMAT_UNSPEC | fi::FI_CQ_FORMAT_TAGGED => Format::Tagged,
            _ => return Err(Code::INVALID),
        };
        check_wait(attributes.wait_obj)?;
        let fid = object::head(Self::CLASS, context.0, &COMMON);
        let fid = fid_cq { fid, ops: object::table(&TABLE) };
        Ok(Self { fid, queue: Arc::new(Queue::new()?), format, has_size: version >= WITH_SIZE })
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    /// Reads completions, and who sent them, where there is room for that.
    ///
    /// # Safety
    /// `into` has room for `count` structures of the format, `from` is null or has room for as many numbers.
    unsafe fn read(&self, into: *mut c_void, count: usize, from: *mut fi_addr_t) -> Result<usize, Code> {
        if into.is_null() && count > 0 {
            return Err(Code::INVALID);
        }
        self.queue.read(count, |at, completion| {
            // SAFETY: `at` is below `count`.
            unsafe { self.write(completion, into, at) };
            if !from.is_null() {
                // SAFETY: as above.
                let from = unsafe { from.add(at) };
                // SAFETY: as above.
                unsafe { from.write(completion.from) };
            }
        })
    }

    /// As [`read`](Self::read), but for who reads on behind all that there was: without a look at the network.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn read_on(&self, into: *mut c_void, count: usize, from: *mut fi_addr_t) -> Result<usize, Code> {
        if self.queue.was_emptied()? {
            return Err(Code::AGAIN);
        }
        // SAFETY: as the caller says.
        unsafe { self.read(into, count, from) }
    }

    /// Waits until there are some.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn wait(
        &self,
        into: *mut c_void,
        count: usize,
        from: *mut fi_addr_t,
        timeout: c_int,
    ) -> Result<usize, Code> {
        let answered = self.queue.answered();
        let look = || {
            // SAFETY: as the caller says.
            match unsafe { self.read(into, count, from) } {
                Err(Code::AGAIN) if !self.queue.is_interrupted(answered) => None,
                other => Some(other),
            }
        };
        self.queue.drivers.wait(timeout, look)?.unwrap_or(Err(Code::AGAIN))
    }

    /// Writes one as the `at`th.
    ///
    /// # Safety
    /// There is room for more than `at`.
    unsafe fn write(&self, completion: &Completion, into: *mut c_void, at: usize) {
        let Completion { context, flags, len, buffer, data, tag, .. } = *completion;
        let (op_context, buf) = (context.0, buffer.0);
        match self.format {
            // SAFETY: as the caller says.
            Format::Context => unsafe { put(into, at, fi::fi_cq_entry { op_context }) },
            // SAFETY: as the caller says.
            Format::Message => unsafe { put(into, at, fi::fi_cq_msg_entry { op_context, flags, len }) },
            Format::Data => {
                // SAFETY: as the caller says.
                unsafe { put(into, at, fi::fi_cq_data_entry { op_context, flags, len, buf, data }) }
            }
            Format::Tagged => {
                // SAFETY: as the caller says.
                unsafe { put(into, at, fi::fi_cq_tagged_entry { op_context, flags, len, buf, data, tag }) }
            }
        }
    }
}

/// Writes the `at`th of an array.
///
/// # Safety
/// It has more than `at`.
unsafe fn put<T>(array: *mut c_void, at: usize, value: T) {
    // SAFETY: as the caller says.
    let slot = unsafe { array.cast::<T>().add(at) };
    // SAFETY: as the caller says; applications align what they read into for the format that they chose.
    unsafe { slot.write(value) };
}

static COMMON: fi_ops = fi_ops { control: Some(control), ..object::common(close) };

static TABLE: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(read_from),
    readerr: Some(read_error),
    sread: Some(wait),
    sreadfrom: Some(wait_from),
    signal: Some(signal),
    strerror: Some(describe),
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        unsafe { CompletionQueue::take_back(of) }.map(drop)
    })
}

/// There is no descriptor to wait for in its stead.
unsafe extern "C" fn control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    done(|| Err(Code::NOT_HERE))
}

unsafe extern "C" fn read(queue: *mut fid_cq, into: *mut c_void, count: usize) -> isize {
    counted(|| {
        // SAFETY: what the application opened and did not close.
        let queue = unsafe { CompletionQueue::of(queue) }?;
        // SAFETY: the application has room for `count`.
        unsafe { queue.read_on(into, count, ptr::null_mut()) }
    })
}

unsafe extern "C" fn read_from(
    queue: *mut fid_cq,
    into: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
) -> isize {
    counted(|| {
        // SAFETY: what the application opened and did not close.
        let queue = unsafe { CompletionQueue::of(queue) }?;
        // SAFETY: the application has room for `count`.
        unsafe { queue.read_on(into, count, from) }
    })
}

unsafe extern "C" fn wait(
    queue: *mut fid_cq,
    into: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    counted(|| {
        // SAFETY: what the application opened and did not close.
        let queue = unsafe { CompletionQueue::of(queue) }?;
        // SAFETY: the application has room for `count`.
        unsafe { queue.wait(into, count, ptr::null_mut(), timeout) }
    })
}

unsafe extern "C" fn wait_from(
    queue: *mut fid_cq,
    into: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    counted(|| {
        // SAFETY: what the application opened and did not close.
        let queue = unsafe { CompletionQueue::of(queue) }?;
        // SAFETY: the application has room for `count`.
        unsafe { queue.wait(into, count, from, timeout) }
    })
}

unsafe extern "C" fn read_error(queue: *mut fid_cq, into: *mut fi_cq_err_entry, _flags: u64) -> isize {
    counted(|| {
        // SAFETY: what the application opened and did not close.
        let queue = unsafe { CompletionQueue::of(queue) }?;
        // SAFETY: the application's, for the call.
        let into = unsafe { into.as_mut() }.ok_or(Code::INVALID)?;
        let failed = queue.queue.read_failed()?;
        let (code, cut) = failed.fault.map_or((0, 0), |fault| (fault.code.0, fault.cut));
        into.op_context = failed.context.0;
        into.flags = failed.flags;
        into.len = failed.len;
        into.buf = failed.buffer.0;
        into.data = failed.data;
        into.tag = failed.tag;
        into.olen = cut;
        into.err = code;
        into.prov_errno = code;
        // There is nothing more about it (fi_cq(3), err_data_size). What follows is the application's, and longer in later versions.
        if queue.has_size {
            into.err_data_size = 0;
        }
        Ok(1)
    })
}

unsafe extern "C" fn signal(queue: *mut fid_cq) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let queue = &unsafe { CompletionQueue::of(queue) }?.queue;
        queue.drivers.check_here()?;
        queue.interrupt();
        Ok(())
    })
}

unsafe extern "C" fn describe(
    _queue: *mut fid_cq,
    error: c_int,
    _data: *const c_void,
    to: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: as the application says.
    unsafe { tell(error, to, room) }
}

/// As [`describe`], of an event queue.
pub(crate) unsafe extern "C" fn describe_event(
    _queue: *mut fid_eq,
    error: c_int,
    _data: *const c_void,
    to: *mut c_char,
    room: usize,
) -> *const c_char {
    // SAFETY: as the application says.
    unsafe { tell(error, to, room) }
}

/// Says what an error is.
///
/// # Safety
/// `to` is null or has `room` bytes.
unsafe fn tell(error: c_int, to: *mut c_char, room: usize) -> *const c_char {
    let told: &CStr = match error {
        fi::FI_ECANCELED => c"cancelled",
        fi::FI_ETIMEDOUT => c"the peer has said nothing for too long",
        fi::FI_ECONNABORTED => c"the peer's process ended, or could not reach this one for too long",
        fi::FI_EHOSTUNREACH => {
            c"the peer never answered: is UDP open between the hosts, and is it of this job?"
        }
        fi::FI_ENOMSG => c"no such message",
        _ if error == Code::TRUNCATED.0 => c"the message is longer than the buffer",
        _ => c"a fault in the provider",
    };
    // SAFETY: as the caller says.
    unsafe { write_text(told.to_str().unwrap_or_default(), to, room) };
    told.as_ptr()
}

/// The first version whose errors have the size of more about them.
const WITH_SIZE: u32 = version(1, 5);

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(version: u32) -> CompletionQueue {
        CompletionQueue::open(&fi::fi_cq_attr::default(), version, Context(ptr::null_mut())).unwrap()
    }

    #[test]
    fn each_format_has_what_it_should() {
        let formats =
            [fi::FI_CQ_FORMAT_CONTEXT, fi::FI_CQ_FORMAT_MSG, fi::FI_CQ_FORMAT_DATA, fi::FI_CQ_FORMAT_TAGGED];
        for (format, words) in formats.into_iter().zip([1, 3, 5, 6]) {
            let attributes = fi::fi_cq_attr { format, ..Default::default() };
            let queue = CompletionQueue::open(&attributes, WITH_SIZE, Context(ptr::null_mut())).unwrap();
            let context = Context(ptr::without_provenance_mut(1));
            for _ in 0..2 {
                queue.queue.push(Completion { len: 3, data: 5, tag: 6, ..Completion::of(context, 2) });
            }
            let (mut read, mut from) = ([99_u64; 13], [0; 2]);
            // SAFETY: no format has more than 6 words.
            let count = unsafe { queue.read(read.as_mut_ptr().cast(), 2, from.as_mut_ptr()) };
            assert_eq!(count, Ok(2));
            let whole = [1, 2, 3, 0, 5, 6];
            assert_eq!(read[..words], whole[..words]);
            assert_eq!(read[words..2 * words], whole[..words]);
            assert_eq!(read[2 * words], 99);
        }
    }

    #[test]
    fn an_error_says_what_was_cut_and_that_there_is_no_more_where_there_is_room_for_that() {
        let completion = Completion { data: 3, tag: 4, ..Completion::of(Context(ptr::null_mut()), 0) };
        let fault = crate::completion::Fault { code: Code::TRUNCATED, cut: 7 };
        for (version, size) in [(WITH_SIZE, 0), (WITH_SIZE - 1, 11)] {
            let queue = opened(version);
            queue.queue.push(Completion { fault: Some(fault), ..completion });
            let mut entry = fi_cq_err_entry { err_data_size: 11, ..Default::default() };
            let fid = (&raw const queue).cast_mut().cast();
            // SAFETY: both are there.
            assert_eq!(unsafe { read_error(fid, &raw mut entry, 0) }, 1);
            assert_eq!((entry.err, entry.olen, entry.data, entry.tag), (Code::TRUNCATED.0, 7, 3, 4));
            assert_eq!(entry.err_data_size, size);
            // SAFETY: both are there.
            assert_eq!(unsafe { read_error(fid, &raw mut entry, 0) }, -(fi::FI_EAGAIN as isize));
        }
    }

    #[test]
    fn a_wait_is_over_in_time_and_when_it_is_interrupted() {
        let queue = opened(WITH_SIZE);
        let mut room = [0_u64; 6];
        // SAFETY: there is room for one.
        let mut wait = |timeout| unsafe { queue.wait(room.as_mut_ptr().cast(), 1, ptr::null_mut(), timeout) };
        assert_eq!(wait(1), Err(Code::AGAIN));
        queue.queue.interrupt();
        assert_eq!(wait(-1), Err(Code::AGAIN));
    }
}
