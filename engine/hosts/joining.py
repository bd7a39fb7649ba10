"""Joins the hosts of a run: the roll call, JAX's own connection, and the team that watches over them."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NoReturn

from engine.caching import discard_cache
from engine.errors import AcceleratorError, ConsoleError, one_line
from engine.events import Phase, RunFailed, RunFinished, StopRequested
from engine.hosts.agreed_stop import AgreedStop
from engine.hosts.roll_call import answer_roll_call, call_roll, make_card
from engine.hosts.team import Follower, Leader
from engine.stopping import StopToken

if TYPE_CHECKING:
    from engine.channel import Channel
    from engine.config import RunConfig
    from engine.hosts.membership import Membership

_PACKAGES = ("jax", "jaxlib", "keras", "libtpu", "numpy", "tpu-console")
_JAX_LIMIT_S = 60
_NOTICED_S = 3.0
# JAX ends a process whose partner is silent for so long. A lost host is noticed here long before.
_JAX_SILENT_S = 3600
_PREEMPTION = "jax_enable_preemption_service"


@dataclass(slots=True)
class Team:
    """A run's hosts, joined.

    Args:
        channel: The run.
        membership: This host's place.
        stop: Its step counter; its `attach` takes the compiled model.
        side: Host 0's side or another host's.
    """

    channel: Channel
    membership: Membership
    stop: AgreedStop
    side: Leader | Follower

    @property
    def is_leader(self) -> bool:
        """Whether this host writes the run."""
        return self.membership.index == 0

    @property
    def names(self) -> dict[int, str]:
        """The hosts' names by their number, as far as this one knows them."""
        return {self.membership.index: socket.gethostname(), **self.side.names}

    def finish(self) -> None:
        """Take leave of the others after training, in an order in which nobody is taken for lost."""
        import jax

        self.side.finish()
        with suppress(RuntimeError):  # another host may have ended without a word; what this one made is saved
            jax.distributed.shutdown()
        self.side.close()

    def fail(self, error: BaseException, failed: RunFailed) -> NoReturn:
        """Tell the others why this host cannot go on, write it as the run's last event, and end this process.

        Where another host is gone, the step that waits for it may fail before it is missed. Then that is the cause,
        and the last event names the host.
        """
        self.side.fail(failed.what, wait_s=0.0 if isinstance(error, ConsoleError) else _NOTICED_S)
        _leave(self.channel, failed)


def join(membership: Membership, config: RunConfig, channel: Channel) -> Team:
    """Meet the other hosts, and connect JAX with them.

    Args:
        membership: This host's place.
        config: Its configuration.
        channel: The run; from now on it stops when all hosts agreed to.

    Raises:
        AcceleratorError: They do not come, or do not belong together.
    """
    stop = AgreedStop()
    card = make_card(membership, config, _versions())
    asked, agreed = channel.stop_token, StopToken()

    def lost(what: str) -> None:
        _end(channel, what, is_leader=membership.index == 0)

    def unbegun(reason: str) -> None:
        channel.emit(StopRequested(reason))
        _leave(channel, RunFinished("stopped", f"{reason}, before training began", {}))

    side: Leader | Follower
    if membership.index == 0:
        links, cards, port = call_roll(
            membership, card, channel.should_stop, lambda detail: channel.enter(Phase.CONNECTING, detail)
        )
        side = leader = Leader(channel, links, cards, stop, lost, asked.request, unbegun)

        def request_stop(reason: str) -> None:
            leader.request_stop(reason, lambda: agreed.request(reason))
    else:
        channel.enter(Phase.CONNECTING, f"looking for host 0 at {membership.where}")
        link, name, port = answer_roll_call(membership, card, channel.should_stop)
        side = follower = Follower(channel, link, name, stop, lost, agreed.request, unbegun)
        request_stop = follower.request_stop
    try:
        _connect_jax(membership, port)
    except ConsoleError as error:
        side.fail(error.what)
        raise
    side.start()
    # From now on no host stops by itself: whoever is asked tells host 0, and all stop when they agreed to.
    channel.stop_token = agreed
    asked.listen(request_stop)
    return Team(channel, membership, stop, side)


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _connect_jax(membership: Membership, port: int) -> None:
    import inspect

    import jax

    wanted: dict[str, Any] = {
        "initialization_timeout": _JAX_LIMIT_S,
        "heartbeat_timeout_seconds": _JAX_SILENT_S,
        "shutdown_timeout_seconds": _JAX_LIMIT_S,
    }
    if hasattr(jax.config, _PREEMPTION):
        # It would take SIGTERM for itself, which asks a run here to stop and save.
        jax.config.update(_PREEMPTION, False)
    known = inspect.signature(jax.distributed.initialize).parameters
    try:
        jax.distributed.initialize(
            coordinator_address=membership.at(port),
            num_processes=membership.count,
            process_id=membership.index,
            **{name: value for name, value in wanted.items() if name in known},
        )
    except (RuntimeError, ValueError) as error:
        raise AcceleratorError(
            f"JAX cannot connect the {membership.count} hosts at {membership.at(port)}.",
            why=one_line(error, 300),
            remedy="Look whether every host reaches that port.",
        ) from error


def _end(channel: Channel, what: str, *, is_leader: bool) -> None:
    """End the run for another host: training may hang in a step that never ends."""
    remedy = "No epoch had ended, so there is no checkpoint."
    if not is_leader:
        remedy = "Host 0 has the checkpoints, once an epoch has ended."
    elif (channel.run.checkpoints / "last.keras").exists():
        remedy = "checkpoints/last.keras has the model after the newest epoch."
    _leave(channel, RunFailed(f"{what} The run cannot go on without it.", "", remedy, channel.run.log.name))


def _leave(channel: Channel, last: RunFailed | RunFinished) -> NoReturn:
    """Write the run's last event and end this process; JAX's own exit would wait for the other hosts."""
    discard_cache(channel.run)
    channel.emit(last)
    channel.journal.flush()
    os._exit(1 if isinstance(last, RunFailed) else 0)
