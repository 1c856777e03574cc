"""The process at every site: it reports what the site has and does, and carries out what it is told."""
