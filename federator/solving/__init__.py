"""The only door to OR-Tools: decide with all stages, here or in a child process.

`decide` is pure; `inline` runs it in this process (simulator, offline tool), `child` in a persistent child (`worker`) that is killed
when it is late. Only `glop` imports ortools: a parent that never decides inline never loads it.
"""
