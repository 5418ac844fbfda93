//! Multicast of products to a group, as pure machines: a [`sender`] and a [`receiver`], what they share, and how sockets are to
//! drive them. What they say is [`farlink_wire::cast`].
//!
//! # A sender's threads
//!
//! One thread has the [`sender::Sender`], the UDP socket of the group and the files; it is the one that is to run under real-time
//! scheduling where that is wanted. For each receiver one more thread (or one for several, over `epoll`) reads and writes its control
//! connection, and passes what it read on to the first.
//!
//! ```text
//! a control connection says …            the driver calls …
//!   Words::Join                            Sender::on_join, then sends Words::Welcome with Sender::position, Sender::pace, Sealer::next (which
//!                                          rate::RateFinder::on_join is to know, too, with a rate to find),
//!                                          and Words::Pace to the others where Sender::pace is half as much again as they were told
//!   Nack, Have, Report, Failed             on_nack, on_have, on_report (where nothing of the group comes there, what was sent is gone), on_failed; rate::RateFinder::on_report too, with a rate to find
//!   it ended, or is silent                 on_leave
//!   it takes no more, or more again        on_writable
//! a product is there                     on_product, while Sender::wants_products; on_no_more after the last, and Words::End to all
//! a product cannot be read               on_unreadable; on_superseded where a later one has its name
//!
//! Sender::poll says …                    the driver …
//!   Data                                   reads the bytes (announcement, content and digest by Shape::parts) into packets of Payload,
//!                                          seal::Sealer::seal each, one sendmsg with UDP_SEGMENT; adds them to a parity::ParityEncoder where
//!                                          there is parity and the packets are of the first pass (begin where a block begins)
//!   Parity                                 sends ParityEncoder::parity(index)
//!   Status                                 seals and sends it
//!   Repair                                 reads the bytes behind a control::repair_header, to the receiver's connection
//!   Gone, Lost                             to the receiver's connection
//!   Released                               closes the file, or drops what was in memory; a product that can be read again stays known by name
//! Sender::deadline                       sleeps until then at most: a timer, or an event from another thread
//! ```
//!
//! The digest of a product is needed with its last packet only, so a sender hashes what it reads for the first pass, as it reads it, and
//! keeps the digest: repairs need it again. The first pass of a product never goes back. A product's size may not change once it was
//! given: a file that became shorter is unreadable.
//!
//! # A receiver's threads
//!
//! One thread has the [`seal::Opener`], the [`receiver::Receiver`] and the UDP socket, whose buffer should hold 50 ms of the rate; one
//! reads the control connection, or the first does both over `epoll`.
//!
//! ```text
//! a datagram (recvmmsg, UDP_GRO)         Opener::open; dropped where it says so; Data → on_data and write at once what it says, Parity →
//!                                        on_parity, Status → on_status; Receiver::on_counts with what the opener has counted, now and then
//! Repair                                 on_data with `repair: true`, and write what it says
//! Gone, Lost, Words::{End, Pace}, Echo   on_gone, on_lost, on_end, on_pace, on_rtt with the time that the echo took
//! the connection was lost                connect again: with the same session on_reconnected, with another a new Receiver
//!
//! Receiver::poll says …                  the driver …
//!   Nack, Have, Report                     sends them; Echo beside each report
//!   Announced                              opens what content goes to beneath its directory. A partial file or a final one of the same
//!                                          name, size and time from before: proves what it has, and on_found. What cannot be stored: on_unwanted
//!   Complete                               compares the digest (hashed as it came, or read back), gives the final name, on_checked
//!   Rebuild                                reads the packets back, parity::rebuild, on_data for each packet that it gives
//!   Failed                                 removes the partial file; Control::Failed, but for Failure::Lost
//! Receiver::deadline                     sleeps until then at most
//! ```
//!
//! Content may come before the name is known: it goes to a partial file that is named after session and product until then.
//!
//! `--groups` is a sender for each class of receivers: a session, a group address and a rate of its own.

pub mod pacer;
pub mod packets;
pub mod parity;
pub mod rate;
pub mod receiver;
pub mod repair_policy;
pub mod seal;
pub mod sender;
pub mod spans;
pub mod window;
