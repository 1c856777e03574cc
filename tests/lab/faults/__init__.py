"""Fault simulation: the dispatcher and the agents on virtual time, with everything around them going wrong as a seed says, and the promises watched.

Read `running` for one seed from beginning to end, `plan` for what a world is and `drawing` for how it is drawn, `truth` and `watch` for what is watched, and the rest for what stands
in the place of machines, networks, disks and clouds.
"""
