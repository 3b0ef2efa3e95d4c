"""What has nothing to do with any paper: arguments, data, models, training, metrics, results."""

import contextlib
import ctypes
import os

__version__ = "0.3.0"

# PyTorch asks Linux for pages of 2 MB, not 4 KB, for large tensors: otherwise their first touch, anew in each step, can
# cost more than the arithmetic. Read at the first tensor; results keep their bits.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# The C library takes a tensor of that kind from the system alone, and gives it back whole. By default it places tensors
# up to 32 MB between others, where pages of 2 MB leave gaps that it does not fill. macOS and musl have no such setting.
M_MMAP_THRESHOLD, LARGE = -3, 2**22  # bytes of two pages: a tensor of one, and what aligns it
if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)
