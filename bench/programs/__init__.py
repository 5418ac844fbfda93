"""What benches run beside the tools: programs of MPI, and of their tests."""
