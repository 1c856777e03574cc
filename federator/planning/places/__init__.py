"""Where a job might run.

- `candidates`: a pool that exists or an offer that could be rented, in one view.
- `host_sets`: hosts, what is free on each, and when busy work gives its part back.
- `stocks`: what rented machines are taken from: offers, and stocks that offers share.
- `data`: what bringing a job's inputs there takes, in time and money.
- `interruption_rate`: how often spot machines are taken back, and how much longer work takes there.
- `staleness`: how far a site is believed that has not been heard of for a while.
- `requests`: what a job asks for, as reasons have it.
"""
