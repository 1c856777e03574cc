"""A federation on virtual time: the production dispatcher and agent core, on simulated sites, links, clouds and work.

Only the edges are replaced here: the clock, the store (in memory), the way between agent and dispatcher (a pipe in this process), what runs at a
site (ranks that take as long as a trace says) and the clouds. Turn, committer, checker, executor, sweeper, hub and the agent's machine are the ones
of production, so that what is seen here is what they would do.
"""
