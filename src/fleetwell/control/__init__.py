"""The leader: observes the fleet, lets the pure policy core decide, and carries out what it wants.

Reading order: :mod:`observe` keeps the :mod:`picture`; :mod:`loop` lets ladder and budget decide over it and writes the
Incidents; :mod:`dispatch` hands what must be true to the effects, at most one per node at a time; an effect's result is
an observation like any other.
"""
