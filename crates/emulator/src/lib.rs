//! Links between real hosts: TUN devices and namespaces driven by the link model.
#![forbid(unsafe_code)]
