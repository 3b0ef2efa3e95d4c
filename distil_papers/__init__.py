"""The scripts as modules: `from distil_papers.mc3kd import ccc`, installed by pip or in a copy of the repository.

What the scripts import, `common` and `pocket`, is found beside them, as when `python methods/mc3kd.py` runs.
"""

import sys
from pathlib import Path

_here = Path(__file__).resolve().parent
_root = _here if (_here / "methods").is_dir() else _here.parent
sys.path.insert(0, str(_root))
__path__.append(str(_root / "methods"))
