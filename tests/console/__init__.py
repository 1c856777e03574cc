"""The console in a real browser: a package, so that its browser ends with it."""
