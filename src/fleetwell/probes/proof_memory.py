"""Device memory: nearly all of it is allocated, written and read back, and a word that did not hold is named."""

from __future__ import annotations

from fleetwell.probes.proof_device import WORD, Block, CannotTellError, Device, Flip
from fleetwell.probes.proof_rows import Row
from fleetwell.probes.proof_thresholds import Level, Pattern
from fleetwell.probes.proof_time import Time

CHECK = "memory"


def memory(device: Device, level: Level, patterns: dict[str, Pattern], time: Time) -> Row:
    """Test the memory. All of it is written before any is read, so that two addresses of one cell are found."""
    free = device.free()
    blocks = device.hold(int(free * level.memory_share))
    held = sum(block.words for block in blocks) * WORD
    wanted = level.passes * len(level.patterns)
    done = 0
    for _ in range(level.passes):
        for name in level.patterns:
            if time.over():
                raise CannotTellError(f"out of time after {done} of {wanted} patterns: no wrong word until then")
            found = _pattern(blocks, patterns[name])
            if found is not None:
                return _bad(device, name, *found)
            done += 1
    share = f"{held / free:.0%} of the free memory" if free else "memory"
    return Row(CHECK, device.component, "OK", f"{_size(held)}, {share}, hold {done} patterns")


def _pattern(blocks: list[Block], pattern: Pattern) -> tuple[int, Flip, int] | None:
    """Write and read one pattern; give byte offset of the first wrong word, that word, and the number of all."""
    first = 0
    for block in blocks:
        block.write(pattern, first)
        first += block.words
    found: tuple[int, Flip] | None = None
    first = wrong = 0
    for block in blocks:
        flip = block.verify(pattern, first)
        if flip is not None:
            found = found or ((first + flip.word) * WORD, flip)
            wrong += flip.words
        first += block.words
    return None if found is None else (*found, wrong)


def _bad(device: Device, name: str, offset: int, flip: Flip, wrong: int) -> Row:
    bits = (flip.wrote ^ flip.read).bit_count()
    said = (
        f"byte offset {offset:#x} of the tested memory reads {flip.read:#018x} where {flip.wrote:#018x} was written "
        f"({bits} bits flipped, pattern {name}); {wrong} words are wrong"
    )
    return Row(CHECK, device.component, "BAD", said)


def _size(held: int) -> str:
    return f"{held / (1 << 30):.1f} GiB" if held >= 1 << 30 else f"{held >> 20} MiB"
