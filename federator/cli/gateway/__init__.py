"""`federator gateway`: sends the requests of services to their replicas.

HAProxy takes the requests, checks replicas, spreads, queues and sends again; we tell it who is there. Each service has a fixed number of *slots*: servers of HAProxy, each the
Unix socket of a folder, behind which the gateway puts one replica at a time and connects it by tunnels. So a replica that comes or goes changes no line of the configuration and
cuts no connection; only a service that comes or goes does, and then HAProxy hands its ports on to its next process.

- `configuration`: the text for HAProxy;
- `haproxy`: the process, its runtime API, and the log lines that it sends us;
- `routes`: slots, and the connections through them;
- `gateway`: the verb, a loop that asks the dispatcher and tells it of the load.
"""
