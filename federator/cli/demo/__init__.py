"""`demo`: a whole federation on this machine, doing its main job in front of your eyes.

Everything that matters is real: the dispatcher, the agents, the rented machines and the jobs are processes, the plans are made by the
same code, and nothing is told what to show. Only time (faster), GPUs (declared) and money (pretended) are not.
"""
