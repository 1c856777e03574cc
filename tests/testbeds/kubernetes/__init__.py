"""A real Kubernetes on loopback: etcd, API server, controllers and scheduler, a kubelet that runs containers, and nodes that only pretend to."""
