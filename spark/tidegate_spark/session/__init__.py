"""The Spark session of an app: Java, jars and table formats."""
