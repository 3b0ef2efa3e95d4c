"""What has nothing to do with any paper: arguments, data, models, training, metrics, results.

The core is what every script loads; other modules are rooms, opened where a command needs them (tests/test_rooms.py).
"""

import contextlib
import ctypes
import os

__version__ = "0.3.0"

# PyTorch asks Linux for pages of 2 MB, not 4 KB, for large tensors: otherwise their first touch, anew in each step, can
# cost more than the arithmetic. Read at the first tensor; results keep their bits.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# glibc is to take such a tensor from the system by itself. Its heap, where it places up to 32 MB by default, keeps the
# gaps between pages of 2 MB, and grows. Other C libraries have no such setting.
M_MMAP_THRESHOLD, LARGE = -3, 2**22  # mallopt's number of it; bytes, as a page is placed within two
if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)
