"""Topics, changelogs, savepoints and tables as DataFrames."""
