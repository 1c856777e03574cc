"""Ways to scale a service, compared on requests that were really sent; in virtual time: `python -m tests.bench.services TRACE`.

- `requests`: the trace, and what a replica needs for a request;
- `fleet`: replicas that start, work, drain and go, and the requests at the gateway;
- `scalers`: what says how many replicas are wanted;
- `comparison`: one after the other over the same requests, and the table.

What the product decides by is what is simulated: `federator.model.services`, and the loads as the dispatcher keeps them.
"""
