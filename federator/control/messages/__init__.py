"""Who is told of what without asking.

- `alerts`: what the platform team should hear of without looking.
- `notifications`: what people asked to be told of their jobs.
"""
