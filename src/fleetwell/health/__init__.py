"""What a GPU node can have, and how it is told: verdicts, findings, faults, kernel-log grammar, triage.

Pure: nothing here does IO or reads a clock; the time is always an argument.
"""
