"""`python -m federator.planning.kernels`: compile now, so that no first decision waits for it."""

import sys

from federator.planning.kernels import prepare, trouble

sys.exit(0 if prepare() else trouble())
