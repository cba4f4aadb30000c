"""The decisions of the cluster side, pure: ladder, disruption budget and pace, and what they say of themselves.

Nothing here does IO or reads a clock. The controller and the rehearsal run the same code.
"""
