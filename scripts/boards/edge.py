"""Edge and actors: whether core keeps up, and which part of it does not."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts.boards.parts import Ask, Limit, Panels, board, lines, quantile, rate


def edge() -> Dashboard:
    """Of uid certosa-edge."""
    return board(
        "certosa-edge",
        "Frames between core and jails, actors and their mailboxes, loops, and what is written to disk.",
        [("Edge", _edge()), ("Actors and loops", _actors()), ("Disk and vault", _stores())],
    )


def _edge() -> Panels:
    return [
        lines(
            "Frames",
            "From jails (in) and to them (out). The threshold is 50 streams at 20 tokens a second, both "
            "ways.",
            "ops", Limit(4000, 16000),
            Ask(rate("certosa_edge_frames_total", "direction"), "{{direction}}"), to="certosa-overview",
        ),
        lines(
            "Bytes", "Of those frames.", "Bps", Limit(10 << 20, 50 << 20),
            Ask(rate("certosa_edge_bytes_total", "direction"), "{{direction}}"), to="certosa-overview",
        ),
        lines(
            "Frames by kind", "Items are pieces of answers, credit is what lets them come.",
            "ops", Limit(4000, 16000),
            Ask(rate("certosa_edge_frames_total", "direction, kind"), "{{direction}} {{kind}}"),
        ),
        lines(
            "Bytes of a frame", "On average, by direction. Near the limit of one: large files or texts.",
            "bytes", Limit(64 << 10, 512 << 10),
            Ask(f'{rate("certosa_edge_bytes_total", "direction")} / '
                f'clamp_min({rate("certosa_edge_frames_total", "direction")}, 1e-9)', "{{direction}}"),
        ),
        lines(
            "Faults", "Jails that broke the protocol, within an hour, by how. There is no harmless one.",
            "short", Limit(1, 5),
            Ask("sum by (reason) (increase(certosa_edge_faults_total[1h]))", "{{reason}}"),
            to="certosa-security",
        ),
        lines(
            "HTTP by route", "Requests answered.", "reqps", Limit(50, 200),
            Ask(rate("certosa_http_requests_total", "route"), "{{route}}"), to="certosa-turns",
        ),
    ]  # fmt: skip


def _actors() -> Panels:
    return [
        lines(
            "Lag of loops, p99",
            "How late hub, edge and egress run; above 50 ms everybody's tokens are late, and at "
            "[hub]'s limit turns are refused.",
            "s", Limit(0.05, 0.25), Ask(quantile(0.99, "certosa_loop_lag_seconds", "loop"), "{{loop}}"),
            to="certosa-overview",
        ),
        lines(
            "Share of time in actors",
            "What each kind of actor takes of one second of core: the largest is what to "
            "look into when core's CPU is near 1.",
            "percentunit", Limit(0.5, 0.8),
            Ask(rate("certosa_actor_handle_seconds_sum", "actor"), "{{actor}}"), to="certosa-overview",
        ),
        lines(
            "Time of a message, p99", "What an actor takes to handle one. No actor may wait for anything.",
            "s", Limit(0.01, 0.1), Ask(quantile(0.99, "certosa_actor_handle_seconds", "actor"), "{{actor}}"),
        ),
        lines(
            "Mailboxes, p99",
            "Messages waiting behind the one that is handled. Above some tens: this actor does not "
            "keep up.",
            "short", Limit(25, 100),
            Ask(quantile(0.99, "certosa_actor_mailbox_messages", "actor"), "{{actor}}"),
        ),
        lines(
            "Messages", "Handled, by kind of actor.", "ops", Limit(4000, 16000),
            Ask(rate("certosa_actor_handle_seconds_count", "actor"), "{{actor}}"),
        ),
        lines(
            "Not answered in time",
            "Questions that somebody was asked and did not answer, within five minutes.",
            "short", Limit(1, 5),
            Ask("sum by (asked) (increase(certosa_ask_timeouts_total[5m]))", "{{asked}}"),
        ),
        lines(
            "Restarts of actors", "By their supervisors, within an hour. Each is a bug: the log says which.",
            "short", Limit(1, 5), Ask("sum by (actor) (increase(certosa_restarts_total[1h]))", "{{actor}}"),
        ),
        lines(
            "Processes that answer", "Whether each trusted process answered the scrape: 1 or 0.",
            "short", Limit(1, 0.5, low=True), Ask("min by (process) (certosa_process_up)", "{{process}}"),
            to="certosa-overview",
        ),
        lines(
            "Age of processes", "Since each was started. A sawtooth is a process that crashes.",
            "s", Limit(600, 60, low=True),
            Ask("min by (process) (time() - certosa_process_start_time_seconds)", "{{process}}"),
            to="certosa-overview",
        ),
    ]  # fmt: skip


def _stores() -> Panels:
    jobs, groups = (
        rate("certosa_store_jobs_total", "store"),
        rate("certosa_store_commit_seconds_count", "store"),
    )
    return [
        lines(
            "Commits, p99",
            "A group's transaction, its wait for the disk too, by store. What was acknowledged is on "
            "disk, so a slow disk is slow turns.",
            "s", Limit(0.1, 1), Ask(quantile(0.99, "certosa_store_commit_seconds", "store"), "{{store}}"),
        ),
        lines(
            "Jobs in a group", "On average: more where the disk is slow and much waits.",
            "short", Limit(50, 200), Ask(f"{jobs} / clamp_min({groups}, 1e-9)", "{{store}}"),
        ),
        lines(
            "Groups that came to nothing",
            "Refused by disk or database, within five minutes. There should be none.",
            "short", Limit(1, 2),
            Ask("sum by (store) (increase(certosa_store_failures_total[5m]))", "{{store}}"),
            to="certosa-overview",
        ),
        lines(
            "Vault", "Questions a second, and how many wait (number).",
            "ops", Limit(500, 2000),
            Ask(rate("certosa_vault_operations_total", "operation"), "{{operation}}"),
            Ask("sum(certosa_vault_waiting)", "waiting"), to="certosa-security",
        ),
        lines(
            "Vault's time, p99", "For one question; each request's token is one.",
            "s", Limit(0.05, 0.25), Ask(quantile(0.99, "certosa_vault_operation_seconds"), "p99"),
            to="certosa-security",
        ),
    ]  # fmt: skip
