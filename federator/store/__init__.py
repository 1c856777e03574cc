"""Where the federation's state is kept: one contract (`federator.ports.Store`, `federator.ports.Blobs`), several stores.

`memory` is the reference the others are compared with; `sqlite` is the default for one dispatcher; `etcd` is for several. What is too large for
them is in files (`blobs`) or in a bucket (`s3_blobs`, and logs in `segments`).
"""
