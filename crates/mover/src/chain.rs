//! An error and its causes as one line, for records and for the far end.

use std::error::Error;

/// `error` and what caused it, each after a colon: what a program prints, and what a record keeps.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}
