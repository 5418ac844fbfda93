//! What stands between C and Rust: an error becomes its negative number, and no panic leaves.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};

use farlink_flow::fabric::operation::{Failure, Refused};
use farlink_host::origin::Origin;

use crate::bindings as fi;

/// One of libfabric's error numbers, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

impl Code {
    pub(crate) const AGAIN: Self = Self(fi::FI_EAGAIN);
    pub(crate) const AVAILABLE: Self = Self(fi::FI_EAVAIL as c_int);
    pub(crate) const BAD_FLAGS: Self = Self(fi::FI_EBADFLAGS as c_int);
    pub(crate) const INVALID: Self = Self(fi::FI_EINVAL);
    pub(crate) const NO_COMPLETION_QUEUE: Self = Self(fi::FI_ENOCQ as c_int);
    pub(crate) const NO_ADDRESSES: Self = Self(fi::FI_ENOAV as c_int);
    pub(crate) const NO_DATA: Self = Self(fi::FI_ENODATA);
    pub(crate) const NO_KEY: Self = Self(fi::FI_ENOKEY as c_int);
    pub(crate) const NO_MEMORY: Self = Self(fi::FI_ENOMEM);
    pub(crate) const NO_MESSAGE: Self = Self(fi::FI_ENOMSG);
    pub(crate) const NO_OPTION: Self = Self(fi::FI_ENOPROTOOPT);
    pub(crate) const NOT_ENABLED: Self = Self(fi::FI_EOPBADSTATE as c_int);
    pub(crate) const NOT_FOUND: Self = Self(fi::FI_ENOENT);
    pub(crate) const NOT_HERE: Self = Self(fi::FI_ENOSYS);
    pub(crate) const OTHER: Self = Self(fi::FI_EOTHER as c_int);
    pub(crate) const TIMED_OUT: Self = Self(fi::FI_ETIMEDOUT);
    pub(crate) const TOO_SMALL: Self = Self(fi::FI_ETOOSMALL as c_int);
    pub(crate) const TRUNCATED: Self = Self(fi::FI_ETRUNC as c_int);
    const BROKEN: Self = Self(fi::FI_EIO);
    const CANCELLED: Self = Self(fi::FI_ECANCELED);
    const ENDED: Self = Self(fi::FI_ECONNABORTED);
    pub(crate) const TOO_LONG: Self = Self(fi::FI_EMSGSIZE);
    const UNREACHABLE: Self = Self(fi::FI_EHOSTUNREACH);
}

impl From<Failure> for Code {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Cancelled => Self::CANCELLED,
            Failure::Silent => Self::TIMED_OUT,
            Failure::Ended => Self::ENDED,
            Failure::Lost => Self::BROKEN,
            Failure::Unreachable | Failure::Stranger => Self::UNREACHABLE,
        }
    }
}

impl From<Refused> for Code {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::AGAIN,
            Refused::TooLong { .. } => Self::TOO_LONG,
            Refused::Failed(failure) => failure.into(),
        }
    }
}

/// What a function of C returns: a count, or an error's negative number.
pub(crate) trait Answer {
    /// Of a count.
    fn count(count: usize) -> Self;
    /// Of an error.
    fn error(code: Code) -> Self;
}

impl Answer for c_int {
    fn count(count: usize) -> Self {
        Self::try_from(count).unwrap_or(Self::MAX)
    }

    fn error(code: Code) -> Self {
        -code.0
    }
}

impl Answer for isize {
    fn count(count: usize) -> Self {
        Self::try_from(count).unwrap_or(Self::MAX)
    }

    fn error(code: Code) -> Self {
        -(code.0 as Self)
    }
}

/// Runs what a function of C does and returns a count.
pub(crate) fn counted<A: Answer>(run: impl FnOnce() -> Result<usize, Code>) -> A {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(count)) => A::count(count),
        Ok(Err(code)) => A::error(code),
        Err(_) => A::error(Code::OTHER),
    }
}

/// Runs what a function of C does and returns nothing but whether it could.
pub(crate) fn done<A: Answer>(run: impl FnOnce() -> Result<(), Code>) -> A {
    counted(|| run().map(|()| 0))
}

/// Refuses whoever was forked since: what another thread held then, it holds for ever there.
pub(crate) fn check_origin(origin: &Origin) -> Result<(), Code> {
    if origin.is_here() { Ok(()) } else { Err(Code::NOT_ENABLED) }
}

/// What a lock protects; an error where a thread panicked with it, so that nothing of it can be relied upon.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Code> {
    mutex.lock().map_err(|_| Code::OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_number() {
        assert_eq!(counted::<isize>(|| panic!("a fault")), -256);
        assert_eq!(done::<c_int>(|| Err(Code::AGAIN)), -11);
        assert_eq!(counted::<isize>(|| Ok(3)), 3);
    }

    #[test]
    fn a_peer_s_failure_says_which() {
        assert_eq!(Code::from(Refused::Full), Code::AGAIN);
        assert_eq!(Code::from(Refused::Failed(Failure::Ended)).0, fi::FI_ECONNABORTED);
        assert_eq!(Code::from(Failure::Unreachable).0, fi::FI_EHOSTUNREACH);
    }
}
