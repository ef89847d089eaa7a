"""The last that the server process of `commands` imports: what is loaded by then stays, and no copy looks at it again.

Otherwise each copy's garbage collector would, and so have pages of its own for all of it."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
