"""A frozen set of recorded problems, by which two builds of the planner are compared: `make`, `decide`, `judge`.

`python -m tests.bench.corpus.make FOLDER` writes the problems, from simulations, tests and the solver's bench. `decide.py` has one build decide
them and writes its plans; `judge.py` prices the plans of two builds with a third build's evaluator and checker, which stays the same however
the planner changes. The last two are run by their paths, and import nothing but `federator`, so that they work in any build's environment.
"""
