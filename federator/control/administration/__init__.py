"""Who may, and what people change besides jobs.

- `tokens`: people's bearer tokens. `admission`: who gets in: people, agents, and agents of rented machines (`user_data`).
- `sign_in`: whose request it is, by a token made here or by an OpenID Connect provider's, whose `claims` say who somebody is.
- `authority`: who may submit to which queue, and how a person stands to a job. `visibility`: which jobs somebody is shown; `archive_search`: of the archive, too.
- `policy_service`: policies, as one version after another. `own_addresses`: where people say to be told of their jobs.
- `sites`: drained, taken back, declared dead. `tunnels`: into running jobs, and that they were opened.
"""
