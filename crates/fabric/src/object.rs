//! Objects that C holds: each begins with libfabric's own structure, so that a pointer to that is a pointer to the whole.

use std::ffi::{c_int, c_void};

use crate::absent::Absent;
use crate::bindings::{fi_ops, fid};
use crate::entry::Code;

/// What the program calls an object by, in its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Context(pub(crate) *mut c_void);

// SAFETY: it is the program's, handed back as it came and never followed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// An object that begins with a `T` of libfabric's.
///
/// # Safety
/// It is `repr(C)`, its first field is a `Fid`, and that begins with a `fid` whose class is [`CLASS`](Self::CLASS) in no other type.
pub(crate) unsafe trait Object: Sized {
    /// Libfabric's part.
    type Fid;
    /// Its class.
    const CLASS: u32;

    /// Gives it to the program, which gives it back to [`close`].
    fn hand_over(self, to: *mut *mut Self::Fid) -> Result<(), Code> {
        if to.is_null() {
            return Err(Code::INVALID);
        }
        let object = Box::into_raw(Box::new(self)).cast();
        // SAFETY: it is not null, and where the program wants it.
        unsafe { to.write(object) };
        Ok(())
    }

    /// The object that libfabric's part belongs to.
    ///
    /// # Safety
    /// `of` is null, or what [`hand_over`](Self::hand_over) gave and was not closed, and stays so for `'a`.
    unsafe fn of<'a>(of: *mut Self::Fid) -> Result<&'a Self, Code> {
        // SAFETY: as the caller says.
        unsafe { of.cast::<Self>().as_ref() }.ok_or(Code::INVALID)
    }

    /// The object that a `fid` belongs to, where it is of this class.
    ///
    /// # Safety
    /// As [`of`](Self::of), for an object of any class.
    unsafe fn of_fid<'a>(of: *mut fid) -> Result<&'a Self, Code> {
        // SAFETY: as the caller says; all objects begin with one.
        let head = unsafe { of.as_ref() }.ok_or(Code::INVALID)?;
        if head.fclass != Self::CLASS as usize {
            return Err(Code::INVALID);
        }
        // SAFETY: no other type has this class.
        unsafe { Self::of(of.cast()) }
    }

    /// Takes it back from the program.
    ///
    /// # Safety
    /// As [`of_fid`](Self::of_fid); nobody uses it any more.
    unsafe fn take_back(of: *mut fid) -> Result<Box<Self>, Code> {
        // SAFETY: as the caller says.
        unsafe { Self::of_fid(of) }?;
        // SAFETY: it was made by `hand_over`, from a box.
        Ok(unsafe { Box::from_raw(of.cast()) })
    }
}

/// The part that all of libfabric's structures begin with.
pub(crate) fn head(class: u32, context: *mut c_void, table: &'static fi_ops) -> fid {
    fid { fclass: class as usize, context, ops: (&raw const *table).cast_mut() }
}

/// A table's address, as libfabric's structures hold it; nobody writes there.
pub(crate) fn table<T>(table: &'static T) -> *mut T {
    (&raw const *table).cast_mut()
}

/// The functions that all objects have, of one that can be closed.
pub(crate) const fn common(close: unsafe extern "C" fn(*mut fid) -> c_int) -> fi_ops {
    fi_ops { close: Some(close), ..ABSENT }
}

/// None of the functions that all objects have.
pub(crate) const ABSENT: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: Absent::ABSENT,
    bind: Absent::ABSENT,
    control: Absent::ABSENT,
    ops_open: Absent::ABSENT,
    tostr: Absent::ABSENT,
    ops_set: Absent::ABSENT,
};
