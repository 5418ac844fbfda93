//! The kernel's settings, named as sysctl(8) does.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::kernel_files::KernelFiles;

/// Settings as they were read; one that is not there has no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, Setting>);

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As the kernel shows it.
    pub text: String,
    /// Whether the administrator of this network namespace may change it: the others only see what the first
    /// namespace's chose.
    pub writable: bool,
}

impl Settings {
    /// Reads the settings of these names.
    pub fn read(names: &[&str], files: &mut KernelFiles) -> Self {
        let one = |&name: &&str| {
            let path = file(name);
            let text = files.text(&path)?;
            let writable = fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o222 != 0);
            Some((name.to_owned(), Setting { text, writable }))
        };
        Self(names.iter().filter_map(one).collect())
    }

    /// A setting as it is.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.0.get(name)
    }

    /// A setting that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        self.setting(name)?.text.parse().ok()
    }

    /// A setting that is three numbers: least, first and most.
    #[must_use]
    pub fn triple(&self, name: &str) -> Option<[u64; 3]> {
        let numbers: Vec<u64> = self.words(name)?.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        numbers.try_into().ok()
    }

    /// A setting that is a list of words.
    pub fn words(&self, name: &str) -> Option<impl Iterator<Item = &str>> {
        Some(self.setting(name)?.text.split_whitespace())
    }

    /// With this setting, which may be changed, in place of what was read.
    #[must_use]
    pub fn with(mut self, name: &str, text: &str) -> Self {
        self.0.insert(name.to_owned(), Setting { text: text.to_owned(), writable: true });
        self
    }

    /// With this setting as one that cannot be changed from here.
    #[must_use]
    pub fn with_fixed(mut self, name: &str, text: &str) -> Self {
        self.0.insert(name.to_owned(), Setting { text: text.to_owned(), writable: false });
        self
    }
}

/// The file of a setting.
fn file(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_there_is() {
        let names = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_sack", "net.ipv4.none_such"];
        let settings = Settings::read(&names, &mut KernelFiles::default());
        let [least, first, most] = settings.triple("net.ipv4.tcp_rmem").unwrap();
        assert!(least <= first && first <= most);
        assert!(settings.number("net.ipv4.tcp_sack").is_some());
        assert_eq!(settings.setting("net.ipv4.none_such"), None);
        assert!(settings.setting("net.ipv4.tcp_sack").unwrap().writable);
    }

    #[test]
    fn what_is_no_number_is_absent() {
        let settings = Settings::default().with("a", "1 2").with("b", "cubic").with("c", "1 2 -3");
        assert_eq!((settings.triple("a"), settings.number("b"), settings.triple("c")), (None, None, None));
        assert_eq!(settings.words("a").unwrap().count(), 2);
    }
}
