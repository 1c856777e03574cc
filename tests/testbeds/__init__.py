"""Real servers that tests and benchmarks start on loopback, each in a temporary folder, and end again. Nothing here installs anything."""
