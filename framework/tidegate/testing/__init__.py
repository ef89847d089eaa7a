"""For tests of services: a harness with a manual clock, an in-memory log, fault points."""
