"""The storage of checkpoints and savepoints: manifest, files, reading, writing, comparing, exporting."""
