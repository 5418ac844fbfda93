//! Makes libfabric's types from its headers, and keeps the library in memory once it is loaded.

use std::env;
use std::path::PathBuf;

use bindgen::callbacks::{IntKind, ParseCallbacks};
use bindgen::{Builder, CodegenConfig};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Its thread may still be on its way out when the core closes it (dlclose in libfabric's own destructor).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let headers: String = HEADERS.iter().map(|header| format!("#include <rdma/{header}>\n")).collect();
    let made = Builder::default()
        .header_contents("libfabric.h", &headers)
        .with_codegen_config(CodegenConfig::TYPES | CodegenConfig::VARS)
        .allowlist_type("fid|fid_.*|fi_.*|ssize_t")
        .allowlist_var("FI_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .wrap_unsafe_ops(true)
        .layout_tests(false)
        .generate_comments(false)
        .parse_callbacks(Box::new(Kinds))
        .generate();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs");
    match made.map(|bindings| bindings.write_to_file(&out)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("write {}: {error}", out.display()),
        Err(error) => panic!("read libfabric's headers (Debian has them in libfabric-dev): {error}"),
    }
}

/// Flags and sizes are of 64 bits whatever their value is; error numbers are what functions return.
#[derive(Debug)]
struct Kinds;

impl ParseCallbacks for Kinds {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let error = name.starts_with("FI_E") && name != "FI_EVENT";
        Some(if error { IntKind::Int } else { IntKind::U64 })
    }
}

const HEADERS: [&str; 10] = [
    "fabric.h",
    "fi_errno.h",
    "fi_domain.h",
    "fi_endpoint.h",
    "fi_cm.h",
    "fi_tagged.h",
    "fi_rma.h",
    "fi_atomic.h",
    "fi_collective.h",
    "providers/fi_prov.h",
];
