//! Endpoints: what is bound to them, and what is posted to them.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use farlink_flow::fabric::operation::{Kind, Wanted};

use crate::absent::Absent;
use crate::address_vector::{AddressVector, NOWHERE, write_address};
use crate::bindings as fi;
use crate::bindings::{
    fi_addr_t, fi_ops, fi_ops_atomic, fi_ops_cm, fi_ops_collective, fi_ops_ep, fi_ops_msg, fi_ops_rma,
    fi_ops_tagged,
};
use crate::bindings::{fid, fid_ep, fid_t};
use crate::complaint::complain;
use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;
use crate::driver::Driver;
use crate::drivers::Drive as _;
use crate::entry::{Code, done, lock};
use crate::memory::Parts;
use crate::object::{self, Context, Object};
use crate::offer::ENDS_NOT_HAD;
use crate::post::{Incoming, Look, Notice, Outgoing};
use crate::progress::Progress;

/// One that the application opened.
#[repr(C)]
pub(crate) struct Endpoint {
    fid: fid_ep,
    driver: Arc<Driver>,
    /// Its thread, from when it is enabled on.
    progress: Mutex<Option<Progress>>,
    transmit_flags: u64,
    receive_flags: u64,
    /// Whether receives that name a peer are that peer's.
    directed: bool,
    /// Bytes that a buffer for several messages has at least, as long as it takes more.
    least: AtomicUsize,
}

/// The functions by which messages are posted to it.
pub(crate) struct Calls {
    pub(crate) message: &'static fi_ops_msg,
    pub(crate) tagged: &'static fi_ops_tagged,
}

// SAFETY: as the trait wants it.
unsafe impl Object for Endpoint {
    type Fid = fid_ep;
    const CLASS: u32 = fi::FI_CLASS_EP;
}

impl Endpoint {
    pub(crate) fn open(
        calls: &Calls,
        capabilities: u64,
        transmit_flags: u64,
        receive_flags: u64,
        context: Context,
    ) -> Result<Self, Code> {
        Ok(Self::over(Driver::open()?, calls, capabilities, transmit_flags, receive_flags, context))
    }

    /// One that has a driver.
    fn over(
        driver: Arc<Driver>,
        calls: &Calls,
        capabilities: u64,
        transmit_flags: u64,
        receive_flags: u64,
        context: Context,
    ) -> Self {
        // MPICH, which asks for that, has sends injected that must return before they are received (`MPI_Isend`); Open MPI only those that may
        // wait (`MPI_Send`), and may so be held up where nobody receives.
        if Notice::Flags(transmit_flags).of_peer() {
            driver.keep_all();
        }
        let fid = fid_ep {
            fid: object::head(Self::CLASS, context.0, &COMMON),
            ops: object::table(&TABLE),
            cm: object::table(&NAMES),
            msg: object::table(calls.message),
            rma: object::table(&ONE_SIDED),
            tagged: object::table(calls.tagged),
            atomic: object::table(&ATOMIC),
            collective: object::table(&COLLECTIVE),
        };
        Self {
            fid,
            driver,
            progress: Mutex::new(None),
            transmit_flags,
            receive_flags,
            directed: capabilities & fi::FI_DIRECTED_RECV != 0,
            least: AtomicUsize::new(LEAST_LEFT),
        }
    }

    /// The flags of sends that have none of their own.
    pub(crate) const fn transmit_flags(&self) -> u64 {
        self.transmit_flags
    }

    /// The flags of receives that have none of their own.
    pub(crate) const fn receive_flags(&self) -> u64 {
        self.receive_flags
    }

    /// Sends a message.
    pub(crate) fn send(
        &self,
        to: fi_addr_t,
        kind: Kind,
        data: Option<u64>,
        parts: Parts,
        context: Context,
        flags: u64,
    ) -> Result<(), Code> {
        if flags & ENDS_NOT_HAD != 0 {
            return Err(Code::BAD_FLAGS);
        }
        let copied = flags & fi::FI_INJECT != 0;
        self.post(Outgoing { to, kind, data, parts, context, notice: Notice::Flags(flags), copied })
    }

    /// Sends a message, with or without notice.
    pub(crate) fn post(&self, outgoing: Outgoing) -> Result<(), Code> {
        self.driver.post(|engine, now| engine.send(now, outgoing))
    }

    /// Wants a message.
    pub(crate) fn receive(
        &self,
        from: fi_addr_t,
        wanted: Wanted,
        parts: Parts,
        context: Context,
        flags: u64,
    ) -> Result<(), Code> {
        let incoming = Incoming {
            from: self.source(from),
            wanted,
            parts,
            context,
            notice: Notice::Flags(flags),
            several: flags & fi::FI_MULTI_RECV != 0,
        };
        let least = self.least.load(Ordering::Relaxed);
        self.driver.want(|engine, now| engine.receive(now, incoming, least))
    }

    /// Looks for a message that waits.
    pub(crate) fn peek(&self, from: fi_addr_t, look: Look) -> Result<(), Code> {
        // Who only ever looks reads answers and never an empty queue, so that this is where it goes on.
        self.driver.progress()?;
        let look = Look { from: self.source(from), ..look };
        self.driver.post(|engine, now| engine.peek(now, &look))
    }

    /// Receives a message that was claimed.
    pub(crate) fn receive_claimed(
        &self,
        wanted: Wanted,
        parts: Parts,
        context: Context,
        flags: u64,
    ) -> Result<(), Code> {
        let notice = Notice::Flags(flags);
        let incoming = Incoming { from: None, wanted, parts, context, notice, several: false };
        self.driver.post(|engine, now| engine.receive_claimed(now, incoming))
    }

    /// Drops a message that was claimed.
    pub(crate) fn discard_claimed(&self, context: Context, wanted: Wanted) -> Result<(), Code> {
        self.driver.post(|engine, now| engine.discard_claimed(now, context, wanted))
    }

    fn source(&self, from: fi_addr_t) -> Option<fi_addr_t> {
        Some(from).filter(|from| self.directed && *from != NOWHERE)
    }

    fn enable(&self) -> Result<(), Code> {
        let mut progress = lock(&self.progress)?;
        if progress.is_none() {
            self.driver.enable()?;
            *progress = Some(Progress::start(&self.driver)?);
        }
        Ok(())
    }
}

/// Bytes that a buffer for several messages has left at least, where the application does not say, as with libfabric's own providers: a
/// message that is longer than what is left is cut.
const LEAST_LEFT: usize = 16 << 10;

static COMMON: fi_ops = fi_ops { bind: Some(bind), control: Some(control), ..object::common(close) };

static TABLE: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(option),
    setopt: Some(set_option),
    tx_ctx: Absent::ABSENT,
    rx_ctx: Absent::ABSENT,
    rx_size_left: Absent::ABSENT,
    tx_size_left: Absent::ABSENT,
};

static NAMES: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Absent::ABSENT,
    getname: Some(name),
    getpeer: Absent::ABSENT,
    connect: Absent::ABSENT,
    listen: Absent::ABSENT,
    accept: Absent::ABSENT,
    reject: Absent::ABSENT,
    shutdown: Absent::ABSENT,
    join: Absent::ABSENT,
};

/// Remote memory: not offered, and refused where it is asked for all the same.
static ONE_SIDED: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Absent::ABSENT,
    readv: Absent::ABSENT,
    readmsg: Absent::ABSENT,
    write: Absent::ABSENT,
    writev: Absent::ABSENT,
    writemsg: Absent::ABSENT,
    inject: Absent::ABSENT,
    writedata: Absent::ABSENT,
    injectdata: Absent::ABSENT,
};

static ATOMIC: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Absent::ABSENT,
    writev: Absent::ABSENT,
    writemsg: Absent::ABSENT,
    inject: Absent::ABSENT,
    readwrite: Absent::ABSENT,
    readwritev: Absent::ABSENT,
    readwritemsg: Absent::ABSENT,
    compwrite: Absent::ABSENT,
    compwritev: Absent::ABSENT,
    compwritemsg: Absent::ABSENT,
    writevalid: Absent::ABSENT,
    readwritevalid: Absent::ABSENT,
    compwritevalid: Absent::ABSENT,
};

static COLLECTIVE: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier: Absent::ABSENT,
    broadcast: Absent::ABSENT,
    alltoall: Absent::ABSENT,
    allreduce: Absent::ABSENT,
    allgather: Absent::ABSENT,
    reduce_scatter: Absent::ABSENT,
    reduce: Absent::ABSENT,
    scatter: Absent::ABSENT,
    gather: Absent::ABSENT,
    msg: Absent::ABSENT,
    barrier2: Absent::ABSENT,
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        let endpoint = unsafe { Endpoint::take_back(of) }?;
        if !endpoint.driver.is_here() {
            // It is the parent's, who goes on with it.
            std::mem::forget(endpoint);
            return Ok(());
        }
        // It is gone from here on, and so is not said to have failed: who is told that may close it again.
        if let Ok(mut progress) = lock(&endpoint.progress)
            && let Some(progress) = progress.take()
        {
            progress.stop();
        }
        if endpoint.driver.close().is_err() {
            complain(format_args!("an endpoint could not take leave of its peers: see what was said before"));
        }
        Ok(())
    })
}

unsafe extern "C" fn bind(of: *mut fid, to: *mut fid, flags: u64) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of_fid(of) }?;
        // SAFETY: as above.
        let class = unsafe { to.as_ref() }.ok_or(Code::INVALID)?.fclass;
        match u32::try_from(class).unwrap_or_default() {
            fi::FI_CLASS_AV => {
                // SAFETY: as above.
                let addresses = unsafe { AddressVector::of_fid(to) }?.addresses();
                endpoint.driver.call(|engine, _| engine.bind_addresses(addresses))
            }
            fi::FI_CLASS_CQ => {
                // SAFETY: as above.
                let queue = unsafe { CompletionQueue::of_fid(to) }?.queue();
                queue.drivers.attach(Arc::downgrade(&endpoint.driver) as _)?;
                endpoint.driver.call(|engine, _| engine.queues().bind(&queue, flags))
            }
            fi::FI_CLASS_CNTR => {
                // SAFETY: as above.
                let count = unsafe { Counter::of_fid(to) }?.count();
                count.drivers.attach(Arc::downgrade(&endpoint.driver) as _)?;
                endpoint.driver.call(|engine, _| engine.queues().count_by(&count, flags))
            }
            // It would be told of nothing.
            fi::FI_CLASS_EQ => Ok(()),
            _ => Err(Code::INVALID),
        }
    })
}

unsafe extern "C" fn control(of: *mut fid, command: c_int, _argument: *mut c_void) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of_fid(of) }?;
        if command == fi::FI_ENABLE as c_int { endpoint.enable() } else { Err(Code::NOT_HERE) }
    })
}

unsafe extern "C" fn name(of: fid_t, to: *mut c_void, len: *mut usize) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of_fid(of) }?;
        // SAFETY: as `write_address` wants it.
        unsafe { write_address(endpoint.driver.address(), to, len) }
    })
}

unsafe extern "C" fn cancel(of: fid_t, context: *mut c_void) -> isize {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of_fid(of) }?;
        endpoint.driver.call(|engine, _| engine.cancel(Context(context)))
    })
}

unsafe extern "C" fn option(
    of: fid_t,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of_fid(of) }?;
        // SAFETY: the application's, for the call.
        let len = unsafe { len.as_mut() }.ok_or(Code::INVALID)?;
        if !is_least(level, option) {
            return Err(Code::NO_OPTION);
        }
        if value.is_null() || *len < size_of::<usize>() {
            return Err(Code::TOO_SMALL);
        }
        *len = size_of::<usize>();
        // SAFETY: there is room for it, as was checked.
        unsafe { value.cast::<usize>().write_unaligned(endpoint.least.load(Ordering::Relaxed)) };
        Ok(())
    })
}

unsafe extern "C" fn set_option(
    of: fid_t,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let endpoint = unsafe { Endpoint::of_fid(of) }?;
        if !is_least(level, option) {
            return Err(Code::NO_OPTION);
        }
        if value.is_null() || len != size_of::<usize>() {
            return Err(Code::INVALID);
        }
        // SAFETY: it has as many bytes, as was checked.
        let least = unsafe { value.cast::<usize>().read_unaligned() };
        endpoint.least.store(least, Ordering::Relaxed);
        Ok(())
    })
}

/// Whether an option is the one that there is: of how many bytes a buffer for several messages is used up.
const fn is_least(level: c_int, option: c_int) -> bool {
    level == fi::FI_OPT_ENDPOINT as c_int && option == fi::FI_OPT_MIN_MULTI_RECV as c_int
}

#[cfg(test)]
mod tests;
