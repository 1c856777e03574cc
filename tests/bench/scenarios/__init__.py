"""One module per scenario; the package's docstring says what one has to have."""
