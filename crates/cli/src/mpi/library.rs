//! Where the library is that MPI programs load.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The directory that has it: beside this program, or where packages have it.
pub(crate) fn directory() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    find(&own)
}

fn find(program: &Path) -> anyhow::Result<PathBuf> {
    let beside = program.parent().unwrap_or(Path::new("/"));
    let directories = [beside.join("fabric"), beside.join("../lib/farlink")];
    let found = directories.iter().find(|directory| directory.join(NAME).is_file());
    let found = found.with_context(|| {
        format!("{NAME} is not in {}: run make build, or install it there", directories[0].display())
    })?;
    let mut first = [0; ELF.len()];
    let file = found.join(NAME);
    let read = File::open(&file).and_then(|mut file| file.read_exact(&mut first));
    if read.as_ref().is_err_and(|error| error.kind() != ErrorKind::UnexpectedEof) {
        read.with_context(|| format!("read {}, as ranks have to", file.display()))?;
    }
    if first != ELF {
        bail!("{} is no library: run make build, or install it anew", file.display());
    }
    found.canonicalize().with_context(|| format!("find {}", found.display()))
}

/// What libraries begin with.
const ELF: [u8; 4] = *b"\x7fELF";

/// As providers are called, so that they are found by their directory.
const NAME: &str = "libfarlink-fi.so";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn it_is_beside_the_program_or_where_packages_have_it() {
        let root = std::env::temp_dir().join(format!("farlink-library-{}", std::process::id()));
        let (program, packaged) = (root.join("bin/farlink"), root.join("lib/farlink"));
        fs::create_dir_all(root.join("bin/fabric")).unwrap();
        fs::create_dir_all(&packaged).unwrap();
        let nowhere = find(&program).unwrap_err().to_string();
        fs::write(packaged.join(NAME), "").unwrap();
        let empty = find(&program).unwrap_err().to_string();
        fs::write(packaged.join(NAME), ELF).unwrap();
        let in_package = find(&program).unwrap();
        fs::write(root.join("bin/fabric").join(NAME), ELF).unwrap();
        let built = find(&program).unwrap();
        let root = root.canonicalize().unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert!(nowhere.contains("bin/fabric: run make build"), "{nowhere}");
        assert!(empty.contains("is no library"), "{empty}");
        assert_eq!(in_package, root.join("lib/farlink"));
        assert_eq!(built, root.join("bin/fabric"));
    }
}
