"""How an agent runs work. `local` starts processes on this host."""
