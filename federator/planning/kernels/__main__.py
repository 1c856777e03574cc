"""`python -m federator.planning.kernels`: compile now, so that nobody's first decisions are made without."""

import sys

from federator.planning.kernels import prepare, trouble

sys.exit(0 if prepare() else trouble())
