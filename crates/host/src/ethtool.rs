//! What a network interface's driver tells of it, as ethtool(8) asks (the kernel's include/uapi/linux/ethtool.h).
//!
//! Every request is a row of 32-bit words that begins with the command, and the kernel answers in place.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// A conversation with the drivers of one network namespace.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
}

/// How many there are, and how many there could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Now.
    pub now: u32,
    /// At most.
    pub most: u32,
}

/// A feature of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// As `ethtool -k` and `-K` name it (the kernel's net/ethtool/common.c).
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether it can be switched.
    pub changeable: bool,
}

/// The rings of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// In which it receives.
    pub receive: Share,
    /// In which it sends.
    pub transmit: Share,
}

impl Ethtool {
    /// Opens a socket in the caller's network namespace.
    ///
    /// # Errors
    /// As socket(2).
    pub fn open() -> io::Result<Self> {
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// Descriptors in the rings in which `interface` receives and sends.
    ///
    /// # Errors
    /// The driver's: `EOPNOTSUPP` where it has no such rings.
    pub fn rings(&self, interface: &str) -> io::Result<Rings> {
        // struct ethtool_ringparam: cmd, rx_max, rx_mini_max, rx_jumbo_max, tx_max, rx, rx_mini, rx_jumbo, tx.
        let mut words = [0; 9];
        words[0] = GET_RINGS;
        self.ask(interface, &mut words)?;
        let share = |now, most| Share { now, most };
        Ok(Rings { receive: share(words[5], words[1]), transmit: share(words[8], words[4]) })
    }

    /// Queues that both send and receive.
    ///
    /// # Errors
    /// The driver's: `EOPNOTSUPP` where it cannot tell.
    pub fn queues(&self, interface: &str) -> io::Result<Share> {
        // struct ethtool_channels: cmd, max_rx, max_tx, max_other, max_combined, rx, tx, other, combined.
        let mut words = [0; 9];
        words[0] = GET_CHANNELS;
        self.ask(interface, &mut words)?;
        Ok(Share { now: words[8], most: words[4] })
    }

    /// Every feature that the kernel has a name for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn features(&self, interface: &str) -> io::Result<Vec<Feature>> {
        // struct ethtool_sset_info: cmd, reserved, a mask of 64 bits, one length for each bit.
        let mut lengths = [GET_LENGTHS, 0, 0, 0, 0];
        let mask = (1_u64 << FEATURE_NAMES).to_ne_bytes();
        let (first, second) = mask.split_at(4);
        lengths[2] = word(first);
        lengths[3] = word(second);
        self.ask(interface, &mut lengths)?;
        let count = lengths[4] as usize;
        if count == 0 || count > MOST_FEATURES {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // struct ethtool_gstrings: cmd, string_set, len, and so many names of 32 bytes.
        let mut names = vec![0; 3 + count * NAME_WORDS];
        names[..3].copy_from_slice(&[GET_STRINGS, FEATURE_NAMES, count as u32]);
        self.ask(interface, &mut names)?;
        // struct ethtool_gfeatures: cmd, size, and for each 32 features: available, requested, active, never_changed.
        let blocks = count.div_ceil(32);
        let mut bits = vec![0; 2 + blocks * 4];
        bits[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
        self.ask(interface, &mut bits)?;
        let feature = |index: usize| {
            let (block, bit) = (&bits[2 + index / 32 * 4..][..4], 1_u32 << (index % 32));
            Feature {
                name: name(&names[3 + index * NAME_WORDS..][..NAME_WORDS]),
                on: block[2] & bit != 0,
                changeable: block[0] & bit != 0 && block[3] & bit == 0,
            }
        };
        Ok((0..count).map(feature).filter(|feature| !feature.name.is_empty()).collect())
    }

    /// Hands `words` to the driver of `interface`. They must be as many as the command's answer has.
    fn ask(&self, interface: &str, words: &mut [u32]) -> io::Result<()> {
        let mut request = request(interface)?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: SIOCETHTOOL reads one ifreq, and reads and writes the words that it points to, which outlive the
        // call. It writes as many as the structure of the command has: the callers' rows have the length of their
        // structure, and a kernel has one number of features, for which it was asked.
        let status = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A request about `interface` that asks nothing yet.
pub(crate) fn request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero ifreq is a valid one: integers, arrays of them and a null pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn word(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_ne_bytes)
}

/// The text in a field that zeros fill up.
fn name(words: &[u32]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `SIOCETHTOOL` of include/uapi/linux/sockios.h, and below it commands of include/uapi/linux/ethtool.h.
const SIOCETHTOOL: u32 = 0x8946;
const GET_RINGS: u32 = 0x10;
const GET_STRINGS: u32 = 0x1b;
const GET_LENGTHS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;

/// `ETH_SS_FEATURES`: which set of names.
const FEATURE_NAMES: u32 = 4;

/// `ETH_GSTRING_LEN`, 32 bytes, in words.
const NAME_WORDS: usize = 8;

/// Linux had 64 in 2026: an answer beyond this is none.
const MOST_FEATURES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_features_and_no_rings() {
        let ethtool = Ethtool::open().unwrap();
        let features = ethtool.features("lo").unwrap();
        let loopback = features.iter().find(|feature| feature.name == "loopback").unwrap();
        assert_eq!((loopback.on, loopback.changeable), (true, false));
        assert!(features.iter().any(|feature| feature.name == "tx-tcp-segmentation"));
        assert_eq!(ethtool.rings("lo").unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn an_interface_that_cannot_be_is_refused() {
        let ethtool = Ethtool::open().unwrap();
        assert_eq!(ethtool.queues("no-such-0").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(
            ethtool.features("a-name-that-is-too-long").unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
