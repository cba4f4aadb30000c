"""The thin code that acts: one file per thing that can be done to the cluster.

Each reads live, checks that what the decision rested on still holds (UID, boot id, our mark, our incident), acts
through a client that asks the leader's fence, and says what it did in an Event. Instructions say what must be true, so
each may be run again at any time.
"""
