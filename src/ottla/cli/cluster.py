"""`ottla cluster`: looks at a cluster as a whole, and changes which brokers it is made of."""

from __future__ import annotations

from ottla.cli.cluster_status import status
from ottla.cli.reassign.scaling import add_broker, remove_broker
from ottla.cli.rolling_restart import restart
from ottla.cli.terminal import new_app, run_app


def main(arguments: list[str]) -> int:
    app = new_app()
    app.command("status", short_help="controller, brokers, and partitions with something wrong")(status)
    app.command("add-broker", short_help="give a new broker its share of partitions")(add_broker)
    app.command("remove-broker", short_help="move everything away from a broker")(remove_broker)
    app.command("restart", short_help="restart the brokers of a local cluster one by one")(restart)
    app.callback(no_args_is_help=True)(_cluster)
    return run_app(app, "cluster", arguments)


def _cluster() -> None:
    """Look at a cluster as a whole, spread partitions over its brokers, restart them."""
