"""``python -m fleetwell`` is the ``fleetwell`` command."""

from fleetwell.cli import main

if __name__ == "__main__":
    main()
