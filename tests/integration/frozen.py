"""The last import of the server process of `commands`: freezes the loaded objects, so that no fork scans them.

Otherwise the garbage collector of each fork would write to their pages, and copy them all."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
