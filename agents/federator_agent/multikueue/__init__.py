"""The `multikueue` runtime: a site that is a cluster of a MultiKueue, whose work Kueue carries out."""
