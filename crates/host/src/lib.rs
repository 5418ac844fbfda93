//! Every direct system call: TUN, namespaces, sockets, clocks, CPU accounting.
