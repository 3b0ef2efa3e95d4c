"""What has nothing to do with any paper: arguments, data, models, training, metrics, results."""

import os

__version__ = "0.3.0"

# PyTorch asks Linux for pages of 2 MB, not 4 KB, for large tensors: otherwise their first touch, anew in each step, can
# cost more than the arithmetic. Read at the first tensor; results keep their bits.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
