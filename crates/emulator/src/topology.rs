//! Which links an emulation has, in which order, and between what.

/// The links between so many hosts: of two, one each way; of more, a way to the core for each, and then a way from it for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    hosts: usize,
}

impl Topology {
    pub(crate) const fn of(hosts: usize) -> Self {
        Self { hosts }
    }

    /// Whether there is a core.
    pub(crate) const fn is_star(self) -> bool {
        self.hosts > 2
    }

    /// How many links there are.
    pub(crate) const fn links(self) -> usize {
        if self.is_star() { 2 * self.hosts } else { self.hosts }
    }

    /// How many a packet crosses.
    pub(crate) const fn crossed(self) -> u32 {
        if self.is_star() { 2 } else { 1 }
    }

    /// The link by which a host sends.
    pub(crate) const fn from(self, host: usize) -> usize {
        host
    }

    /// The link by which a host receives.
    pub(crate) const fn to(self, host: usize) -> usize {
        if self.is_star() { self.hosts + host } else { 1 - host }
    }

    /// Those that lead to the core.
    pub(crate) const fn to_core(self) -> std::ops::Range<usize> {
        0..if self.is_star() { self.hosts } else { 0 }
    }

    /// The host at each end of the link at `place`; the core is none.
    pub(crate) const fn ends(self, place: usize) -> (Option<usize>, Option<usize>) {
        match self.hosts {
            2 => (Some(place), Some(1 - place)),
            hosts if place < hosts => (Some(place), None),
            hosts => (None, Some(place - hosts)),
        }
    }

    /// The links from one host to another, in the order in which a packet crosses them.
    pub(crate) fn path(self, from: usize, to: usize) -> impl Iterator<Item = usize> {
        std::iter::once(self.from(from)).chain(self.is_star().then(|| self.to(to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_crosses_leads_from_one_host_to_the_other() {
        for hosts in [2, 3, 32] {
            let topology = Topology::of(hosts);
            for from in 0..hosts {
                for to in (0..hosts).filter(|to| *to != from) {
                    let ends: Vec<_> = topology.path(from, to).map(|place| topology.ends(place)).collect();
                    assert_eq!(ends.len(), topology.crossed() as usize);
                    assert_eq!((ends[0].0, ends[ends.len() - 1].1), (Some(from), Some(to)));
                }
                let (sends, receives) = (topology.from(from), topology.to(from));
                assert_eq!((topology.ends(sends).0, topology.ends(receives).1), (Some(from), Some(from)));
                assert!(sends.max(receives) < topology.links());
            }
            assert!(topology.to_core().all(|place| topology.ends(place).1.is_none()));
        }
    }
}
