"""The workloads as Tidegate apps, run by `tidegate worker` as anybody's app is."""
