"""The `federator` command: one module per group of verbs. A verb imports the heavy things it needs when it runs."""
