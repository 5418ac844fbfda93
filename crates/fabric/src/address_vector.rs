//! Address vectors: the endpoints that the application knows, by number.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farlink_host::origin::Origin;
use farlink_wire::fabric::address::Address;

use crate::absent::Absent;
use crate::bindings as fi;
use crate::bindings::{fi_addr_t, fi_ops, fi_ops_av, fid, fid_av};
use crate::complaint::complain;
use crate::entry::{Code, check_origin, counted, done, lock};
use crate::object::{self, Context, Object};

/// Where endpoints are. Numbers are given once, so that they mean the same for as long as the vector lives.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    known: Mutex<Known>,
    removed: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    places: Vec<Option<Address>>,
    endpoints: HashMap<u64, fi_addr_t>,
}

impl Addresses {
    /// The endpoint of that number.
    pub(crate) fn at(&self, place: fi_addr_t) -> Result<Address, Code> {
        let known = lock(&self.known)?;
        let place = usize::try_from(place).map_err(|_| Code::INVALID)?;
        known.places.get(place).copied().flatten().ok_or(Code::INVALID)
    }

    /// Numbers that were ever given.
    pub(crate) fn places(&self) -> fi_addr_t {
        lock(&self.known).map_or(0, |known| known.places.len() as fi_addr_t)
    }

    /// The number of an endpoint, where the application knows it.
    pub(crate) fn place_of(&self, endpoint: u64) -> Option<fi_addr_t> {
        lock(&self.known).ok()?.endpoints.get(&endpoint).copied()
    }

    /// How many were ever removed: what was remembered of numbers before may be wrong.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Acquire)
    }

    /// One more: its number.
    pub(crate) fn insert(&self, address: Address) -> Result<fi_addr_t, Code> {
        let mut known = lock(&self.known)?;
        let place = known.places.len() as fi_addr_t;
        known.places.push(Some(address));
        known.endpoints.insert(address.endpoint, place);
        Ok(place)
    }

    /// One less.
    pub(crate) fn remove(&self, place: fi_addr_t) -> Result<(), Code> {
        let mut known = lock(&self.known)?;
        let slot = usize::try_from(place).ok().and_then(|place| known.places.get_mut(place));
        let removed = slot.and_then(Option::take).ok_or(Code::INVALID)?;
        if known.endpoints.get(&removed.endpoint) == Some(&place) {
            // It may have been given another number as well.
            let is_its =
                |address: &Option<Address>| address.is_some_and(|other| other.endpoint == removed.endpoint);
            match known.places.iter().rposition(is_its) {
                Some(other) => drop(known.endpoints.insert(removed.endpoint, other as fi_addr_t)),
                None => drop(known.endpoints.remove(&removed.endpoint)),
            }
        }
        self.removed.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// One that the application opened.
#[repr(C)]
pub(crate) struct AddressVector {
    fid: fid_av,
    addresses: Arc<Addresses>,
    origin: Origin,
}

// SAFETY: as the trait wants it.
unsafe impl Object for AddressVector {
    type Fid = fid_av;
    const CLASS: u32 = fi::FI_CLASS_AV;
}

impl AddressVector {
    pub(crate) fn open(attributes: &fi::fi_av_attr, context: Context) -> Result<Self, Code> {
        // Neither shared between processes, nor filled while others wait.
        if !attributes.name.is_null() || attributes.flags & (fi::FI_EVENT | fi::FI_READ) != 0 {
            return Err(Code::NOT_HERE);
        }
        let fid = object::head(Self::CLASS, context.0, &COMMON);
        let origin = Origin::here().map_err(|_| Code::NO_MEMORY)?;
        Ok(Self { fid: fid_av { fid, ops: object::table(&TABLE) }, addresses: Arc::default(), origin })
    }

    /// What it has, in the process that opened it: another thread of that may have had its lock when this one was forked.
    fn here(&self) -> Result<&Addresses, Code> {
        check_origin(&self.origin)?;
        Ok(&self.addresses)
    }

    pub(crate) fn addresses(&self) -> Arc<Addresses> {
        Arc::clone(&self.addresses)
    }
}

static COMMON: fi_ops = fi_ops { bind: Some(bind), ..object::common(close) };

static TABLE: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Absent::ABSENT,
    insertsym: Absent::ABSENT,
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(describe),
    av_set: Absent::ABSENT,
};

unsafe extern "C" fn close(of: *mut fid) -> c_int {
    done(|| {
        // SAFETY: the application closes what it opened, once.
        unsafe { AddressVector::take_back(of) }.map(drop)
    })
}

/// To an event queue, which would be told of nothing.
unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    done(|| Ok(()))
}

unsafe extern "C" fn insert(
    vector: *mut fid_av,
    from: *const c_void,
    count: usize,
    places: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    counted(|| {
        // SAFETY: what the application opened and did not close.
        let addresses = unsafe { AddressVector::of(vector) }?.here()?;
        if from.is_null() && count > 0 {
            return Err(Code::INVALID);
        }
        let errors = if flags & fi::FI_SYNC_ERR == 0 { ptr::null_mut() } else { context.cast::<c_int>() };
        let mut refused = 0;
        for at in 0..count {
            // SAFETY: the application has `count` addresses there.
            let bytes = unsafe { from.cast::<[u8; Address::LEN]>().add(at) };
            // SAFETY: as above; bytes lie anywhere.
            let bytes = unsafe { bytes.read_unaligned() };
            let inserted = match Address::decode(&bytes) {
                Ok(address) => addresses.insert(address),
                Err(error) => {
                    complain(format_args!("the address of a peer: {error}"));
                    Err(Code::INVALID)
                }
            };
            refused += usize::from(inserted.is_err());
            if !places.is_null() {
                // SAFETY: where there are numbers, there are `count`.
                let place = unsafe { places.add(at) };
                // SAFETY: as above.
                unsafe { place.write(inserted.unwrap_or(NOWHERE)) };
            }
            if !errors.is_null() {
                // SAFETY: where there are errors, there are `count`.
                let error = unsafe { errors.add(at) };
                // SAFETY: as above.
                unsafe { error.write(inserted.err().map_or(0, |code| code.0)) };
            }
        }
        // Open MPI takes 0 for a success.
        if refused > 0 && refused == count { Err(Code::INVALID) } else { Ok(count - refused) }
    })
}

unsafe extern "C" fn remove(vector: *mut fid_av, places: *mut fi_addr_t, count: usize, _flags: u64) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let addresses = unsafe { AddressVector::of(vector) }?.here()?;
        if places.is_null() && count > 0 {
            return Err(Code::INVALID);
        }
        for at in 0..count {
            // SAFETY: the application has `count` numbers there.
            let place = unsafe { places.add(at) };
            // SAFETY: as above.
            addresses.remove(unsafe { place.read() })?;
        }
        Ok(())
    })
}

unsafe extern "C" fn lookup(
    vector: *mut fid_av,
    place: fi_addr_t,
    to: *mut c_void,
    len: *mut usize,
) -> c_int {
    done(|| {
        // SAFETY: what the application opened and did not close.
        let address = unsafe { AddressVector::of(vector) }?.here()?.at(place)?;
        // SAFETY: as `write_address` wants it.
        match unsafe { write_address(&address, to, len) } {
            // It is cut, and how long it is said (fi_av(3)): no error, as it is of fi_getname(3).
            Err(Code::TOO_SMALL) => Ok(()),
            other => other,
        }
    })
}

/// Writes as much of an address as there is room for, and how long it is.
///
/// # Safety
/// `len` is null or says how many bytes there are at `to`.
pub(crate) unsafe fn write_address(address: &Address, to: *mut c_void, len: *mut usize) -> Result<(), Code> {
    // SAFETY: as the caller says.
    let len = unsafe { len.as_mut() }.ok_or(Code::INVALID)?;
    let fits = (*len).min(Address::LEN);
    if to.is_null() && fits > 0 {
        return Err(Code::INVALID);
    }
    let bytes = address.encode();
    // SAFETY: there are so many bytes in both.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), fits) };
    let short = *len < Address::LEN;
    *len = Address::LEN;
    if short { Err(Code::TOO_SMALL) } else { Ok(()) }
}

unsafe extern "C" fn describe(
    _vector: *mut fid_av,
    address: *const c_void,
    to: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    let written: c_int = done(|| {
        if address.is_null() {
            return Err(Code::INVALID);
        }
        // SAFETY: the application hands an address of ours.
        let bytes = unsafe { address.cast::<[u8; Address::LEN]>().read_unaligned() };
        let text = match Address::decode(&bytes) {
            Ok(address) => format!("farlink://{}/{:016x}", address.at, address.endpoint),
            Err(error) => error.to_string(),
        };
        // SAFETY: the application says how many bytes there are.
        let room = unsafe { len.as_mut() }.ok_or(Code::INVALID)?;
        // SAFETY: as above.
        unsafe { write_text(&text, to, *room) };
        *room = text.len() + 1;
        Ok(())
    });
    if written == 0 { to } else { ptr::null() }
}

/// Writes as much of a text as there is room for, and a zero behind it.
///
/// # Safety
/// `to` is null or has `room` bytes.
pub(crate) unsafe fn write_text(text: &str, to: *mut c_char, room: usize) {
    let Some(most) = room.checked_sub(1).filter(|_| !to.is_null()) else { return };
    let fits = text.len().min(most);
    // SAFETY: there are more bytes than these.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), fits) };
    // SAFETY: as above.
    let end = unsafe { to.add(fits) };
    // SAFETY: as above.
    unsafe { end.write(0) };
}

/// No number.
pub(crate) const NOWHERE: fi_addr_t = fi_addr_t::MAX;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn address(endpoint: u64) -> Address {
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4711);
        Address { endpoint, host: 1, at, process: 1, rank: None }
    }

    fn opened() -> Box<AddressVector> {
        let attributes = fi::fi_av_attr::default();
        Box::new(AddressVector::open(&attributes, Context(ptr::null_mut())).unwrap())
    }

    fn insert_into(vector: &mut AddressVector, bytes: &[u8], places: &mut [fi_addr_t]) -> c_int {
        let fid = (&raw mut *vector).cast();
        // SAFETY: both have as many as there are places.
        unsafe { insert(fid, bytes.as_ptr().cast(), places.len(), places.as_mut_ptr(), 0, ptr::null_mut()) }
    }

    #[test]
    fn an_endpoint_that_loses_one_of_its_numbers_has_the_other() {
        let addresses = Addresses::default();
        assert_eq!([7, 7, 8].map(|endpoint| addresses.insert(address(endpoint)).unwrap()), [0, 1, 2]);
        addresses.remove(1).unwrap();
        assert_eq!([7, 8].map(|endpoint| addresses.place_of(endpoint)), [Some(0), Some(2)]);
        addresses.remove(0).unwrap();
        assert_eq!(addresses.place_of(7), None);
    }

    #[test]
    fn endpoints_have_numbers_until_they_are_removed() {
        let mut vector = opened();
        let bytes = [address(7).encode(), address(8).encode()].concat();
        let mut places = [0; 2];
        assert_eq!(insert_into(&mut vector, &bytes, &mut places), 2);
        assert_eq!(places, [0, 1]);
        assert_eq!(vector.addresses.at(1).unwrap(), address(8));
        assert_eq!(vector.addresses.place_of(7), Some(0));
        vector.addresses.remove(0).unwrap();
        assert_eq!(vector.addresses.place_of(7), None);
        assert_eq!(vector.addresses.at(0), Err(Code::INVALID));
        assert_eq!(vector.addresses.insert(address(9)), Ok(2));
    }

    #[test]
    fn an_address_of_another_version_is_refused() {
        let mut vector = opened();
        let mut bytes = address(7).encode();
        bytes[8] += 1;
        let mut places = [0];
        assert_eq!(insert_into(&mut vector, &bytes, &mut places), -fi::FI_EINVAL);
        assert_eq!(places, [NOWHERE]);
        // Beside others, of which it is told how many there are.
        let several = [bytes, address(8).encode()].concat();
        let mut places = [0; 2];
        assert_eq!(insert_into(&mut vector, &several, &mut places), 1);
        assert_eq!(places, [NOWHERE, 0]);
        assert_eq!(insert_into(&mut vector, &[], &mut []), 0);
    }

    #[test]
    fn an_address_that_is_looked_up_is_cut_to_the_room_there_is() {
        let mut vector = opened();
        let bytes = address(7).encode();
        assert_eq!(insert_into(&mut vector, &bytes, &mut [0]), 1);
        let fid: *mut fid_av = (&raw mut *vector).cast();
        for room in [0, 5, Address::LEN] {
            let (mut written, mut len) = ([0_u8; Address::LEN], room);
            // SAFETY: there are as many bytes as `len` says, and more.
            let looked = unsafe { lookup(fid, 0, written.as_mut_ptr().cast(), &raw mut len) };
            assert_eq!((looked, len), (0, Address::LEN));
            assert_eq!(written[..room], bytes[..room]);
            assert!(written[room..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn an_address_can_be_read() {
        let (bytes, mut text, mut room) = (address(255).encode(), [1; 64], 64);
        // SAFETY: there are so many bytes.
        let told =
            unsafe { describe(ptr::null_mut(), bytes.as_ptr().cast(), text.as_mut_ptr(), &raw mut room) };
        // SAFETY: it is in `text`, which outlives it, and ends with a zero.
        let told = unsafe { std::ffi::CStr::from_ptr(told) };
        assert_eq!(told.to_str().unwrap(), "farlink://127.0.0.1:4711/00000000000000ff");
    }
}
