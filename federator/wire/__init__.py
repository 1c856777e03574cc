"""What is said: job files, HTTP bodies, and the messages between agent and dispatcher. Versioned; pure."""
