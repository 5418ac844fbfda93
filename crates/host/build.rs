//! Compiles the congestion controls in `bpf/` with clang, where there is one; else the build goes on without them.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One source file each, `bpf/NAME.bpf.c`.
const NAMES: [&str; 5] = ["bbr_tso", "circuit", "htcp", "scalable", "suss"];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut programs = String::from("[\n");
    for name in NAMES {
        let object = out.join(format!("{name}.bpf.o"));
        match compile(name, &object) {
            Ok(()) => writeln!(programs, "    ({name:?}, Ok(include_bytes!({object:?}))),"),
            Err(reason) => writeln!(programs, "    ({name:?}, Err({reason:?})),"),
        }
        .unwrap_or_default();
    }
    programs.push(']');
    if let Err(error) = fs::write(out.join("programs.rs"), programs) {
        panic!("write {}: {error}", out.display());
    }
}

fn compile(name: &str, object: &Path) -> Result<(), String> {
    // Both are what cargo says: of libbpf's headers, and of the machine that this is built for.
    let (Some(headers), Ok(machine)) = (env::var_os("DEP_BPF_INCLUDE"), env::var("CARGO_CFG_TARGET_ARCH"))
    else {
        return Err("it was built without libbpf: build it with the feature bpf".to_owned());
    };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let arch = match machine.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    };
    let ran = Command::new(&clang)
        .args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg("-I")
        .arg(headers)
        .arg("-c")
        .arg(format!("bpf/{name}.bpf.c"))
        .arg("-o")
        .arg(object)
        .output();
    match ran {
        Ok(output) if output.status.success() => Ok(()),
        // A program of ours that does not compile is a defect, not a machine without clang.
        Ok(output) => panic!("{clang} bpf/{name}.bpf.c: {}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => Err(format!("it was built without {clang}: install clang and build again")),
    }
}
