//! What libfabric finds in the library: `fi_prov_ini`, and the provider that it returns.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::bindings::{fi_context, fi_fabric_attr, fi_info, fi_provider, fid_fabric};
use crate::entry::{Code, done};
use crate::fabric::Fabric;
use crate::object::{Context, Object as _};
use crate::offer::{Asked, Offer};
use crate::version::{INTERFACE, VERSION};

/// The provider. Libfabric's core writes into its `context`, so it must not be constant.
struct Provider(UnsafeCell<fi_provider>);

// SAFETY: only libfabric's core writes to it, and it does so under its own lock.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(UnsafeCell::new(fi_provider {
    version: VERSION,
    fi_version: INTERFACE,
    context: fi_context { internal: [ptr::null_mut(); 4] },
    name: c"farlink".as_ptr(),
    getinfo: Some(getinfo),
    fabric: Some(fabric),
    cleanup: Some(cleanup),
}));

/// What libfabric's core calls when it has loaded the library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fi_prov_ini() -> *mut fi_provider {
    PROVIDER.0.get()
}

unsafe extern "C" fn getinfo(
    _version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    done(|| {
        if info.is_null() {
            return Err(Code::INVALID);
        }
        // SAFETY: the core hands the application's hints, whole or not at all, and they stay for the call.
        let asked = unsafe { Asked::of(hints) };
        // Addresses come from the peers themselves: no name leads to one.
        let named = !node.is_null() || !service.is_null();
        let offer = Offer::to(&asked, named, flags).ok_or(Code::NO_DATA)?;
        let made = crate::info::make(&offer)?;
        // SAFETY: it is not null, and where the core wants it.
        unsafe { info.write(made) };
        Ok(())
    })
}

unsafe extern "C" fn fabric(
    attributes: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the core hands what getinfo gave, or what the application made of it.
        let attributes = unsafe { attributes.as_ref() }.ok_or(Code::INVALID)?;
        Fabric::new(Context(context), attributes.api_version).hand_over(fabric)
    })
}

/// Nothing is kept but what objects hold, and those are closed.
unsafe extern "C" fn cleanup() {}
