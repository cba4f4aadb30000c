"""Where the API server is and how to prove who we are.

A kubeconfig is read by lightkube's loader, imported only when there is one to read: it brings an HTTP client of its
own (about 6 MiB), which an agent in a pod must not pay. The three files of a service account need no library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fleetwell.kube.errors import ConfigError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICE_ACCOUNT_VARIABLE = "FLEETWELL_SERVICE_ACCOUNT_DIR"
"""Names another folder with the same three files, where nothing can be mounted at the usual place."""


@dataclass(frozen=True)
class ExecPlugin:
    """A command that prints a token (``aws eks get-token`` and the like)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""


@dataclass(frozen=True)
class ConnectionConfig:
    """One API server and one identity. ``*_data`` are base64 as in a kubeconfig; files are absolute.

    ``source`` names where it came from, for messages.
    """

    server: str
    source: str = "given directly"
    namespace: str = "default"
    ca_file: Path | None = None
    ca_data: str | None = field(default=None, repr=False)
    client_cert_file: Path | None = None
    client_cert_data: str | None = field(default=None, repr=False)
    client_key_file: Path | None = None
    client_key_data: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    exec_plugin: ExecPlugin | None = None
    insecure: bool = False


def load(
    kubeconfig: Path | None = None, context: str | None = None, *, service_account: Path | None = None
) -> ConnectionConfig:
    """Find the API server: the file given, else ``$KUBECONFIG``, else the pod's service account, else ~/.kube/config.

    Raises:
        ConfigError: names the file and what to do.
    """
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig, context)
    if listed := [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return from_kubeconfig(next((path for path in listed if path.is_file()), listed[0]), context)
    service_account = service_account or Path(os.environ.get(SERVICE_ACCOUNT_VARIABLE) or SERVICE_ACCOUNT)
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").is_file():
        return in_cluster(service_account)
    return from_kubeconfig(Path("~/.kube/config"), context)


def in_cluster(service_account: Path = SERVICE_ACCOUNT) -> ConnectionConfig:
    """Read a pod's service account; the token is re-read as the kubelet rotates it.

    Raises:
        ConfigError: the variables or files that Kubernetes gives a pod are not there.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        msg = "KUBERNETES_SERVICE_HOST is not set: this does not run in a pod; pass a kubeconfig"
        raise ConfigError(msg)
    for name in ("token", "ca.crt"):
        if not (service_account / name).is_file():
            msg = f"{service_account / name} is missing: give the pod a service account with its token mounted"
            raise ConfigError(msg)
    namespace_file = service_account / "namespace"
    return ConnectionConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        source=str(service_account),
        namespace=namespace_file.read_text().strip() if namespace_file.is_file() else "default",
        ca_file=service_account / "ca.crt",
        token_file=service_account / "token",
    )


def from_kubeconfig(path: Path, context: str | None = None) -> ConnectionConfig:
    """Read one context of a kubeconfig (its current one when ``context`` is None).

    Raises:
        ConfigError: the file is missing, unreadable, or says nothing that can be used.
    """
    import msgspec  # noqa: PLC0415 (with lightkube, see the module's docstring)
    import yaml  # noqa: PLC0415 (as above)
    from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415 (as above)
    from lightkube.core.exceptions import ConfigError as LoaderError  # noqa: PLC0415 (as above)

    path = path.expanduser()
    if not path.is_file():
        msg = f"no kubeconfig at {path}: set KUBECONFIG or pass --kubeconfig FILE"
        raise ConfigError(msg)
    try:
        single = KubeConfig.from_file(path).get(context)
    except LoaderError as error:
        msg = f"{path}: {error}; choose a context with --context NAME or `kubectl config use-context NAME`"
        raise ConfigError(msg) from error
    except KeyError as error:
        msg = f"{path}: {error} is referred to but not defined; check its clusters, contexts and users"
        raise ConfigError(msg) from error
    except (OSError, yaml.YAMLError, msgspec.ValidationError, AttributeError, TypeError, ValueError) as error:
        msg = f"{path} cannot be read as a kubeconfig: {error}; check it with `kubectl config view`"
        raise ConfigError(msg) from error
    if single is None:
        msg = f"{path} names no current context; choose one with `kubectl config use-context NAME`"
        raise ConfigError(msg)
    return _convert(single, path)


def _convert(single: SingleConfig, path: Path) -> ConnectionConfig:
    def absolute(name: str | None) -> Path | None:
        return path.absolute().parent / name if name else None

    user = single.user
    if user is not None and not (
        user.token or user.token_file or user.exec or user.client_cert or user.client_cert_data
    ):
        if user.auth_provider:
            msg = f"{path}: context {single.context_name} uses an auth-provider, which is gone; use its exec plugin"
            raise ConfigError(msg)
        if user.username:
            msg = (
                f"{path}: context {single.context_name} uses a password, which API servers no longer take; use a token"
            )
            raise ConfigError(msg)
    plugin = None
    if user is not None and user.exec is not None:
        plugin = ExecPlugin(
            api_version=user.exec.apiVersion,
            command=user.exec.command,
            args=tuple(user.exec.args or ()),
            env=tuple((variable.name, variable.value) for variable in user.exec.env or ()),
            install_hint=user.exec.installHint or "",
        )
    return ConnectionConfig(
        server=single.cluster.server.rstrip("/"),
        source=f"{path} (context {single.context_name})",
        namespace=single.namespace,
        ca_file=absolute(single.cluster.certificate_auth),
        ca_data=single.cluster.certificate_auth_data,
        client_cert_file=absolute(user.client_cert) if user else None,
        client_cert_data=user.client_cert_data if user else None,
        client_key_file=absolute(user.client_key) if user else None,
        client_key_data=user.client_key_data if user else None,
        token=user.token if user else None,
        token_file=absolute(user.token_file) if user else None,
        exec_plugin=plugin,
        insecure=single.cluster.insecure,
    )
