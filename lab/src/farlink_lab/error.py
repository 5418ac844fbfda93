"""What the lab says when it cannot go on."""


class LabError(Exception):
    """One line for a person: what was wrong, why, and how to mend it."""
