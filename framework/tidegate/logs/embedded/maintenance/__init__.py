"""Background maintenance of the embedded log: retention, compaction, head trimming, reclaiming disk space."""
