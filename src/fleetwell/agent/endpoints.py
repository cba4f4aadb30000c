"""What an agent can be asked and told from outside its process, and what each question reaches in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING

from fleetwell.agent import job_reports
from fleetwell.agent.assessment import Assessment
from fleetwell.agent.http import Handler, HttpServer, split_address
from fleetwell.agent.job_reports import JobReports
from fleetwell.agent.kernel_events import KernelEvents
from fleetwell.agent.publish import Publisher
from fleetwell.agent.settings import Settings
from fleetwell.agent.silent_jobs import SilentJobs
from fleetwell.agent.watch import Watch
from fleetwell.api.node_health import NodeHealthStatus
from fleetwell.kube.client import Client
from fleetwell.kube.token_review import review

if TYPE_CHECKING:
    from fleetwell.agent.metrics import Looks

LOOKS = 2
"""Of each source for one job report: a fault with a debounce is believed at the second."""
LOOK_SECONDS = 20.0
"""That a job waits for them; a hung probe is known after its own deadline, 15 s by default."""


class Endpoints:
    """One agent's endpoints: metrics and job reports on a TCP address, job reports on a Unix socket and by files.

    :param last_beat: when the Lease was last renewed, by the monotonic clock.
    """

    def __init__(
        self,
        settings: Settings,
        client: Client,
        assessment: Assessment,
        watch: Watch,
        kernel: KernelEvents,
        publisher: Publisher,
        last_beat: Callable[[], float | None],
    ) -> None:
        self._settings = settings
        self._assessment = assessment
        self._watch = watch
        self._kernel = kernel
        self._publisher = publisher
        self.last_heartbeat = last_beat
        self._reports = JobReports(
            settings.node_name,
            lambda token: review(client, token, job_reports.AUDIENCE),
            self._look,
            assessment.status,
        )

    def serving(self) -> Iterator[Coroutine[None, None, None]]:
        """Give what is to run, each until cancelled; endpoints only where something may be asked."""
        settings = self._settings
        heard, not_heard = self._reports.heard, self._reports.not_heard
        yield SilentJobs(settings.host_root, heard, not_heard, runtime_root=settings.runtime_root).run()
        if settings.metrics_address:
            host, port = split_address(settings.metrics_address)
            routes = {("POST", job_reports.PATH): self._reports.over_network, **self._metrics()}
            yield HttpServer(routes).serve_tcp(host, port)
        if settings.report_socket is not None:
            server = HttpServer({("POST", job_reports.PATH): self._reports.over_socket})
            yield server.serve_unix(settings.report_socket)

    def _metrics(self) -> dict[tuple[str, str], Handler]:
        from fleetwell.agent import metrics  # noqa: PLC0415 (holds 1.5 MiB, which who scrapes nothing need not pay)

        made = metrics.Metrics(self)
        for source in self._watch.all:
            source.on_look = made.looked
        return {("GET", metrics.PATH): made.answer}

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await asyncio.gather(*(source.look_anew(LOOKS) for source in self._watch.main))
        except TimeoutError:
            return False
        return True

    # What the metrics read.

    def looks(self) -> Iterable[Looks]:
        """Tell how the children fared."""
        from fleetwell.agent.metrics import Looks  # noqa: PLC0415 (loaded by now: only the metrics ask)

        for source in self._watch.all:
            yield Looks(
                source=source.name,
                outcomes=dict(source.outcomes),
                abandoned=source.child.abandoned,
                outstanding=source.child.outstanding is not None,
            )

    def status(self) -> NodeHealthStatus:
        """Tell what is known of the node."""
        return self._assessment.status()

    def publishes(self) -> tuple[int, int]:
        """Tell how often the API server took what was published, and how often it did not."""
        return self._publisher.writes, self._publisher.failures

    def kernel_dropped(self) -> int:
        """Tell how many records of the kernel log could not be read."""
        return self._kernel.dropped

    def kernel_missing(self) -> int:
        """Tell how many records of the kernel log its ring lost before they were read."""
        return self._kernel.missing

    def reports(self) -> Iterable[tuple[str, str, str, int]]:
        """Tell how many job reports there were, by source, kind and result."""
        return [(*labels, number) for labels, number in sorted(self._reports.counts.items())]
