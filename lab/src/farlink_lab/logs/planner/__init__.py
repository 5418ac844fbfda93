"""A log replayed against a circuit service, in virtual time: what each policy would have cost and carried."""
