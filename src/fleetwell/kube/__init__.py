"""The only code of fleetwell that talks to the Kubernetes API server.

Own and small, on aiohttp and msgspec: the typed clients cost 5 to 50 times the CPU, and their informers and leader
election go on after the connection is gone.
"""
