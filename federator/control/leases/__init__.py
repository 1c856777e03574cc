"""What is rented, and given back.

- `executor`: makes leases true; `timer` says when it looks, `budget` what machines may still cost, `demand` for how long one that idles is kept.
- `lease_endings`: how leases end, as changes of records.
- `proposals`: rentals that wait for a person.
- `rented_sites`: the sites that rented machines join. `stocks`: what is taken off a provider's stocks since it was last listed.
"""
