"""The documentation says what is there: links, commands, policies and tables are held against the code."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
import pytest
import yaml

from fleetwell.api.policy import PolicySpec
from fleetwell.api.resources import RemediationPolicy
from fleetwell.api.schema import unknown_fields
from fleetwell.cli import VERBS, cli
from fleetwell.policy.validate import problems

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
LINKED = sorted({*PAGES, *ROOT.glob("*.md")})
MANIFESTS = sorted((DOCS / "deploy").glob("*.yaml"))

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(fleetwell [^`]*)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PLAIN = frozenset({"", "sh", "bash", "console", "shell"})
_END = frozenset({"|", "||", "&&", ";", ">", "2>&1", "&"})
_MISSING = "do not exist"
"""Words of the one line that names commands which are not there."""


def ids(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def anchors(page: Path) -> set[str]:
    """Headings as GitHub makes anchors of them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> Iterator[str]:
    """Every command line of ours that a page shows."""
    text = page.read_text(encoding="utf-8")
    for language, block in _FENCE.findall(text):
        if language in _PLAIN:
            lines = block.replace("\\\n", " ").splitlines()
            yield from (line for it in lines if (line := it.strip().removeprefix("$ ")).startswith("fleetwell "))
    prose = "\n".join(line for line in _FENCE.sub("", text).splitlines() if _MISSING not in line)
    yield from (" ".join(span.split()) for span in _SPAN.findall(prose))


def mistake(line: str) -> str:
    """What is wrong with a command line; empty when its verbs and options exist and its arguments fit."""
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((at for at, word in enumerate(words) if word in _END), len(words))]
    command: click.Command = cli
    context = click.Context(cli, info_name="fleetwell")
    while isinstance(command, click.Group):
        if not words or words[0] in {"--help", "-h", "--version"}:
            return ""
        found = command.get_command(context, words[0])
        if found is None:
            return f"there is no {context.command_path} {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, context, info_name=command.name, **command.context_settings)
    try:
        command.parse_args(context, words)
    except (click.MissingParameter, click.exceptions.Exit):
        return ""  # a page may name a verb without its arguments, or show --help
    except click.UsageError as error:
        said = error.format_message()
        return "" if "does not exist" in said else said  # the files of a page's examples are not here
    return ""


def policies(text: str) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and document.get("kind") == "RemediationPolicy":
            yield document


def policies_of(page: Path) -> list[dict[str, Any]]:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        return list(policies(text))
    return [it for language, block in _FENCE.findall(text) if language == "yaml" for it in policies(block)]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", LINKED, ids=ids(LINKED))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} of {page.name}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link} of {page.name}"


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_every_command_that_is_shown_exists(page: Path) -> None:
    wrong = {line: said for line in commands(page) if (said := mistake(line))}
    assert wrong == {}


def test_a_command_that_is_not_there_would_be_noticed() -> None:
    assert "there is no fleetwell rehearse" in mistake("fleetwell rehearse policy.yaml")
    assert "--nod" in mistake("fleetwell lab up --nod 3")
    assert mistake("fleetwell lab inject gpu-lost gpu-1 --gpu x") != ""
    assert mistake("fleetwell manifests | kubectl apply -f -") == ""
    assert mistake("fleetwell run --nnodes=2 train.py --any-option-of-the-script") == ""


def test_a_command_that_is_there_is_not_called_missing() -> None:
    lines = [line for line in (DOCS / "limits.md").read_text(encoding="utf-8").splitlines() if _MISSING in line]
    named = {word.removeprefix("fleetwell ") for line in lines for word in re.findall(r"`([^`]+)`", line)}
    assert named
    assert named.isdisjoint(VERBS)


@pytest.mark.parametrize("page", [*PAGES, *MANIFESTS], ids=ids([*PAGES, *MANIFESTS]))
def test_every_policy_that_is_shown_is_valid(page: Path) -> None:
    for document in policies_of(page):
        assert unknown_fields(document) == []
        policy = msgspec.convert({**document, "status": {}}, RemediationPolicy)
        assert problems(policy.spec) == [], document["metadata"]["name"]


def test_policies_are_shown() -> None:
    assert len(policies_of(DOCS / "policy.md")) == 2
    assert len(policies_of(DOCS / "deploy" / "policy.yaml")) == 1


def test_every_field_of_a_policy_is_explained() -> None:
    named = set(re.findall(r"`([\w.]+)`", (DOCS / "policy.md").read_text(encoding="utf-8")))
    leaves = {name.rpartition(".")[2] for name in named}
    missing = fields(PolicySpec) - leaves
    assert missing == set()


def fields(of: type[msgspec.Struct]) -> set[str]:
    """Names of all leaves below a struct, as they are written."""
    (top,), components = msgspec.json.schema_components([of], ref_template="{name}")
    del top
    return {
        name
        for schema in components.values()
        for name, field in schema.get("properties", {}).items()
        if "$ref" not in field
    }


@pytest.mark.parametrize("page", ["conditions-and-faults.md", "lab.md"])
def test_tables_made_from_data_are_fresh(page: str, generate: ModuleType) -> None:
    fresh = generate.rewritten(page)
    assert (DOCS / page).read_text(encoding="utf-8") == fresh, "run: python docs/generate.py"


def test_every_page_can_be_reached_from_the_index() -> None:
    seen, ahead = set[Path](), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(page.read_text(encoding="utf-8")))
        ahead += [(page.parent / link).resolve() for link in links if link and "://" not in link]
    assert set(DOCS.rglob("*.md")) <= seen
