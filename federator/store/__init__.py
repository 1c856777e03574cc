"""Where the federation's state is kept: one contract (`federator.ports.Store`, `federator.ports.Blobs`), several stores.

`memory` is the reference the others are compared with; `sqlite` is the default for one dispatcher; `blobs` keeps what is
too large for either.
"""
