"""Runs mpi4py's own tests, but for those that Open MPI 4.1 itself cannot pass over libfabric.

usage: mpi4py_suite.py RUNTESTS [ITS ARGUMENTS…]
"""

import re
import runpy
import sys
import unittest
from pathlib import Path

# Each with where it is known, or what it does: all fail alike with libfabric's own providers.
NOT_OURS = {
    # Its pml cm forgets where such a datatype begins (open-mpi/ompi#11751).
    "Bottom": "messages at absolute addresses",
    # Its mtl ofi looks for the communicator of what is cancelled, and has it of receives alone.
    r"TestP2PObj[^.]*\.testCancel|TestP2PBuf[^.]*\.testProbeCancel": "sends that are cancelled",
    # It asks twice whether six messages to itself have left, and fails where they left in between; what it
    # then has not received is found by the tests after it.
    r"TestP2PObj[^.]*\.testManyISendAndRecv": "sends that end while it looks",
}


def main() -> None:
    """Skip them by their names, and be `runtests.py`."""
    run = unittest.TestCase.run

    def unless_known(self, result=None):  # type: ignore[no-untyped-def]
        for part, reason in NOT_OURS.items():
            if re.search(part, self.id()):
                setattr(self, self._testMethodName, unittest.skip(reason)(lambda: None))
        return run(self, result)

    unittest.TestCase.run = unless_known  # type: ignore[method-assign]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
