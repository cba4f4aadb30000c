"""The tokens of one pod of the lab: its service account's own, and those that its volumes ask for.

A real kubelet mounts them. A process of the lab has no mounts, so they lie in the pod's folder: a volume's files below
``volumes/NAME/``, and its containers find that folder by the variable ``FLEETWELL_LAB_VOLUMES``. Only sources of the
kind ``serviceAccountToken`` are written; others are for nobody here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from fleetwell.kube.bodies import BoundTo
from fleetwell.kube.client import Client
from fleetwell.kube.errors import KubeError
from fleetwell.kube.objects import Pod
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.pki import write_secret

log = structlog.get_logger(__name__)

ACCOUNT = "serviceaccount"
VOLUMES = "volumes"
TOKEN_SECONDS = 3600
WAIT_SECONDS = 30.0
_PAUSE = 0.3


class PodTokens:
    """Writes the tokens of one pod and keeps them fresh.

    :param folder: the pod's folder.
    """

    def __init__(self, client: Client, pod: Pod, plane: ControlPlane, folder: Path) -> None:
        self._client = client
        self._pod = pod
        self._plane = plane
        self._folder = folder

    @property
    def wanted(self) -> bool:
        """Whether the pod has any."""
        return self._has_account or any(True for _ in self._projected())

    async def write_first(self, stop: asyncio.Event) -> None:
        """Write them; the Node authorizer may need a moment to learn that the pod is bound here.

        :raises KubeError: they are still refused after a while, or when the pod is to end.
        """
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while True:
            try:
                await self.write()
            except KubeError:
                if stop.is_set() or asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_PAUSE)
            else:
                return

    async def keep(self) -> None:
        """Write them anew at half of their time, until cancelled."""
        while True:
            await asyncio.sleep(TOKEN_SECONDS / 2)
            try:
                await self.write()
            except KubeError as error:
                log.warning("token not renewed", pod=self._pod.metadata.name, why=str(error))

    async def write(self) -> None:
        """Have them made and write them.

        :raises KubeError: the API server refused one.
        """
        if self._has_account:
            token = await self._token()
            account = self._folder / ACCOUNT
            account.mkdir(exist_ok=True)
            (account / "ca.crt").write_bytes(self._plane.certificate_authority.read_bytes())
            (account / "namespace").write_text(self._pod.metadata.namespace)
            write_secret(account / "token", token.encode())
        for path, source in self._projected():
            token = await self._token(str(source.get("audience", "")), int(source.get("expirationSeconds", 3600)))
            write_secret(path, token.encode())

    @property
    def _has_account(self) -> bool:
        return self._pod.spec.service_account_name not in {"", "default"}

    def _projected(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        for volume in self._pod.spec.volumes:
            folder = self._folder / VOLUMES / volume["name"]
            for source in (volume.get("projected") or {}).get("sources") or []:
                token = source.get("serviceAccountToken")
                # Each pod gets a volume with a token for the API server from its admission; the account's own is that.
                if token is not None and token.get("audience"):
                    yield folder / token["path"], token

    async def _token(self, audience: str = "", seconds: int = TOKEN_SECONDS) -> str:
        return await self._client.create_token(
            self._pod.spec.service_account_name or "default",
            self._pod.metadata.namespace,
            bound_to=BoundTo("Pod", self._pod.metadata.name, self._pod.metadata.uid),
            audiences=[audience] if audience else [],
            expiration_seconds=max(seconds, TOKEN_SECONDS),
        )
