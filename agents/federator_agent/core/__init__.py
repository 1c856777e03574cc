"""The agent's decisions, without I/O: `step(state, event, now)` gives the next state and the instructions to carry out.

Nothing here opens a file, waits or starts a process; the loop does, and tells the outcome as another event. So every history,
a crash between any two lines included, can be played in a test.
"""
