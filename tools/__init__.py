"""What the house is kept with: locks and generated pages. Nothing here is installed."""
