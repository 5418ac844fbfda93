//! Who writes which block of a file at the moment: a sender that hears nothing of a block sends it on a second connection, too.

use std::collections::HashMap;

/// The connections that bring blocks of a file which are not there yet.
#[derive(Debug, Default)]
pub(crate) struct Writers(HashMap<u32, Vec<Writer>>);

#[derive(Debug)]
struct Writer {
    stream: u32,
    /// Whether another has written to the block since this one began, or had before: zeros that this one leaves out are what that wrote.
    disturbed: bool,
}

impl Writers {
    /// `stream` writes a piece of block `index`; whether no other is about it.
    pub(crate) fn on_write(&mut self, index: u32, stream: u32) -> bool {
        let writers = self.0.entry(index).or_default();
        if !writers.iter().any(|writer| writer.stream == stream) {
            writers.push(Writer { stream, disturbed: !writers.is_empty() });
        }
        for other in writers.iter_mut().filter(|writer| writer.stream != stream) {
            other.disturbed = true;
        }
        writers.len() == 1
    }

    /// `stream` is done with block `index`, or ended; whether another has written to it meanwhile, so that nobody knows what it is.
    pub(crate) fn on_end(&mut self, index: u32, stream: u32) -> bool {
        let Some(writers) = self.0.get_mut(&index) else { return false };
        let Some(at) = writers.iter().position(|writer| writer.stream == stream) else { return false };
        let Writer { disturbed, .. } = writers.swap_remove(at);
        if writers.is_empty() {
            self.0.remove(&index);
        }
        disturbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_disturbed_is_told_at_the_end() {
        let mut writers = Writers::default();
        assert!(writers.on_write(3, 0) && writers.on_write(3, 0) && writers.on_write(4, 1));
        assert!(!writers.on_write(3, 1), "a second one");
        assert!(writers.on_end(3, 0), "of which the first is told");
        assert!(writers.on_end(3, 1), "and the second, who leaves what the first wrote where it has zeros");
        assert!(!writers.on_end(3, 1) && !writers.on_end(4, 1));
        assert!(writers.0.is_empty());
    }

    #[test]
    fn both_are_disturbed_where_both_write() {
        let mut writers = Writers::default();
        writers.on_write(0, 0);
        writers.on_write(0, 1);
        writers.on_write(0, 0);
        assert!(writers.on_end(0, 1) && writers.on_end(0, 0));
    }
}
