"""One machine's health from what a person has of it: files, or one look by the probes. No cluster, no memory.

The same readers and the same triage as the agent's, so that a file and a live node get the same verdict. What differs
is that there is no second look: a snapshot is believed at once (nothing can be debounced), nothing ages out, and an
input that is missing, cut off or not what it is said to be leaves the answer at UNKNOWN and never better.

====================  ========================================================================
module                what it does
====================  ========================================================================
:mod:`.given`         reads files, standard input and gzip, all of it bounded
:mod:`.bug_report`    cuts an nvidia-bug-report into the parts that the other readers know
:mod:`.readings`      hands each input to its reader
:mod:`.examination`   puts everything that was read before triage
:mod:`.diagnosis`     the answer, its exit code, its JSON and its text
====================  ========================================================================
"""
