"""Java programs that others wrote and Tidegate uses: a Java to run them, and their jars. Brokers and Spark need it."""

from __future__ import annotations
