//! What our programs call of the kernel's own congestion controls: lent by name, and another kernel's names may be others.

use std::fs;

use super::BTF;

/// One of ours that stands on one of the kernel's.
#[derive(Debug)]
pub(super) struct Lent {
    /// Ours.
    name: &'static str,
    /// The kernel's.
    pub(super) by: &'static str,
    /// Functions of that, by which it is known.
    called: &'static [&'static str],
    /// Where a module describes its types.
    module: &'static str,
    /// What is wrong where the kernel has none.
    pub(super) none: &'static str,
    /// Or another.
    pub(super) other: &'static str,
}

impl Lent {
    /// What the one of ours of that name stands on, if on anything.
    pub(super) fn to(name: &str) -> Option<&'static Self> {
        LENT.iter().find(|lent| lent.name == name)
    }

    /// Whether this kernel's is one that the program knows; it is built in, or a module.
    pub(super) fn is_here(&self) -> bool {
        [BTF, self.module].iter().filter_map(|types| fs::read(types).ok()).any(|types| self.is_in(&types))
    }

    /// Whether there is all by its name that the program calls.
    fn is_in(&self, types: &[u8]) -> bool {
        let mut missing = self.called.to_vec();
        for name in types.split(|byte| *byte == 0) {
            missing.retain(|wanted| wanted.as_bytes() != name);
        }
        missing.is_empty()
    }
}

/// Those of Linux 6.10 to 7.0. Before, the functions were lent on x86 alone ("bpf, tcp: …" in the logs of net/ipv4/tcp_bbr.c and tcp_cubic.c);
/// behind it `cwnd_event` is another.
const LENT: [Lent; 2] = [
    Lent {
        name: "bbr_tso",
        by: "bbr",
        called: &[
            "bbr_init",
            "bbr_main",
            "bbr_sndbuf_expand",
            "bbr_undo_cwnd",
            "bbr_cwnd_event",
            "bbr_ssthresh",
            "bbr_min_tso_segs",
            "bbr_set_state",
        ],
        module: "/sys/kernel/btf/tcp_bbr",
        none: "it is the kernel's BBR in larger pieces, and this kernel has none: run one built with CONFIG_TCP_CONG_BBR",
        other: "it is the BBR of Linux 6.10 to 7.0 in larger pieces, and this kernel's is another",
    },
    Lent {
        name: "suss",
        by: "cubic",
        called: &[
            "cubictcp_init",
            "cubictcp_recalc_ssthresh",
            "cubictcp_cong_avoid",
            "cubictcp_state",
            "cubictcp_cwnd_event",
            "cubictcp_acked",
        ],
        module: "/sys/kernel/btf/tcp_cubic",
        none: "it is the kernel's CUBIC with another slow start, and this kernel has none: run one built with CONFIG_TCP_CONG_CUBIC",
        other: "it is the CUBIC of Linux 6.10 to 7.0 with another slow start, and this kernel's is another",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_lends_other_functions_is_another() {
        for lent in &LENT {
            let types =
                |names: &[String]| format!("\0tcp_init\0{}\0bbr_undo\0", names.join("\0")).into_bytes();
            let mut names: Vec<_> = lent.called.iter().map(|&name| name.to_owned()).collect();
            assert!(lent.is_in(&types(&names)));
            let event = names.iter_mut().find(|name| name.ends_with("cwnd_event")).unwrap();
            event.push_str("_tx_start");
            assert!(!lent.is_in(&types(&names)) && !lent.is_in(&[]));
        }
    }

    #[test]
    fn this_hosts_lends_what_the_program_calls_if_it_can_be_loaded() {
        for lent in &LENT {
            if matches!(super::super::ensure(lent.name), Ok(Some(_))) {
                assert!(lent.is_here(), "{}", lent.name);
            }
        }
    }
}
