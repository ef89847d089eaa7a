"""The workloads as Tidegate apps, run by `tidegate worker` like any other app."""
