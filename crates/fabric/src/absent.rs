//! Functions that are not there: libfabric's inline wrappers call through the tables without looking whether there is one.

use std::ffi::c_int;

use crate::bindings::FI_ENOSYS;

/// A place in a table of functions.
pub(crate) trait Absent {
    /// One that refuses, whatever it is given.
    const ABSENT: Self;
}

/// What a function says of itself where it is not there.
trait Refusal {
    const REFUSAL: Self;
}

impl Refusal for c_int {
    const REFUSAL: Self = -FI_ENOSYS;
}

impl Refusal for isize {
    const REFUSAL: Self = -(FI_ENOSYS as Self);
}

macro_rules! absent {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<Answer: Refusal, $first, $($rest),*> Absent
            for Option<unsafe extern "C" fn($first, $($rest),*) -> Answer>
        {
            const ABSENT: Self = {
                unsafe extern "C" fn refuse<Answer: Refusal, $first, $($rest),*>(
                    _: $first,
                    $(_: $rest),*
                ) -> Answer {
                    Answer::REFUSAL
                }
                Some(refuse::<Answer, $first, $($rest),*>)
            };
        }
        absent!($($rest)*);
    };
}

// The longest is fi_compare_atomicv's.
absent!(A B C D E F G H I J K L M N O P);
