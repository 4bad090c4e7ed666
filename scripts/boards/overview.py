"""Overview: is all well, and if not, where to look."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts.boards.parts import Ask, Limit, Panels, board, lines, number, quantile, quantiles, rate

_BAD = "sum(certosa:turns_failed:rate5m) / clamp_min(sum(certosa:turns_ended:rate5m), 1e-9)"


def overview() -> Dashboard:
    """Of uid certosa-overview."""
    return board(
        "certosa-overview",
        "What the server does, and what it has left. Each panel leads to the dashboard that has more.",
        [("At a glance", _glance()), ("Use", _use()), ("What it runs on", _machine())],
    )


def _glance() -> Panels:
    return [
        number(
            "Processes that answer",
            "Of core, egress and spawner, for the server that is worst off. Below 3 something is down: see "
            "the "
            "starts and ends below, and the runbook, CertosaProcessDown.",
            "none", Limit(3, 2, low=True),
            Ask("min(sum by (instance) (certosa_process_up))", "processes"), to="certosa-edge",
        ),
        number(
            "Turns running",
            "As a share of [hub] max_turns. At 100 % further ones are refused with 429.",
            "percentunit", Limit(0.8, 0.95),
            Ask("sum(certosa_turns_running) / sum(certosa_turns_limit)", "of the limit"), to="certosa-turns",
        ),
        number(
            "Pool memory",
            "What jails hold, as a share of the budget. Near 100 % idle jails are given up early and new "
            "ones wait.",
            "percentunit", Limit(0.8, 0.95),
            Ask("sum(certosa_pool_memory_bytes) / sum(certosa_pool_memory_budget_bytes)", "of the budget"),
            to="certosa-pool",
        ),
        number(
            "First token, p95",
            "From the request to the answer's first piece, over five minutes. Model servers are most of it.",
            "s", Limit(2, 5), Ask("max(certosa:first_token_seconds:p95_5m)", "p95"), to="certosa-turns",
        ),
        number(
            "Turns that fail",
            "Share of turns that ended with an error which is not the user's, over five minutes.",
            "percentunit", Limit(0.01, 0.05), Ask(_BAD, "failed"), to="certosa-turns",
        ),
        number(
            "Alerts",
            "Alerts of Certosa's that fire now; Prometheus's own page (/alerts) names them, docs/runbook.md "
            "says what to do.",
            "none", Limit(1, 3),
            Ask('count(ALERTS{alertname=~"Certosa.*", alertstate="firing"}) or vector(0)', "firing"),
        ),
    ]  # fmt: skip


def _use() -> Panels:
    return [
        lines(
            "Turns",
            "Started, ended and refused, a second. Ends follow starts; refusals are users turned away.",
            "ops", Limit(50, 100),
            Ask(rate("certosa_turns_started_total"), "started"),
            Ask(rate("certosa_turns_ended_total"), "ended"),
            Ask(rate("certosa_turns_refused_total"), "refused"), to="certosa-turns",
        ),
        lines(
            "First token", "From the request to the first piece of its answer. Points are single requests: "
            "their request_id is in the logs.",
            "s", Limit(2, 5), *quantiles("certosa_first_token_seconds"), to="certosa-turns",
        ),
        lines(
            "Tokens",
            "As the ledger counts them, in and out. The threshold is 50 streams at 20 tokens a second.",
            "ops", Limit(1000, 4000), Ask(rate("certosa_tokens_total", "direction"), "{{direction}}"),
            to="certosa-turns",
        ),
        lines(
            "HTTP answers",
            "By status. 5xx are faults of the server or of a model server, 4xx of clients; 429 and "
            "507 are refusals.",
            "reqps", Limit(50, 200), Ask(rate("certosa_http_requests_total", "status"), "{{status}}"),
            to="certosa-edge",
        ),
        lines(
            "Jails", "By state. Busy ones run a turn, idle ones are warm, queued ones wait for room.",
            "short", Limit(400, 500), Ask("sum by (state) (certosa_pool_jails)", "{{state}}"),
            to="certosa-pool", stacked=True,
        ),
        lines(
            "Who watches", "Connections that follow sessions: WebSockets and server-sent events.",
            "short", Limit(500, 1000), Ask("sum by (kind) (certosa_streams_open)", "{{kind}}"),
            Ask(rate("certosa_events_sent_total"), "events a second"), to="certosa-edge",
        ),
    ]  # fmt: skip


def _machine() -> Panels:
    return [
        lines(
            "CPU of our processes", "In CPUs. Core and egress are one interpreter each: near 1 they are the "
            "bottleneck, whatever the machine has left (docs/load-and-capacity.md).",
            "short", Limit(0.7, 0.85),
            Ask(rate("certosa_process_cpu_seconds_total", "process"), "{{process}}"), to="certosa-edge",
        ),
        lines(
            "Memory of our processes", "Resident. It should be flat over days; a steady slope is a leak.",
            "bytes", Limit(512 << 20, 1 << 30),
            Ask("sum by (process) (certosa_process_memory_bytes)", "{{process}}"), to="certosa-pool",
        ),
        lines(
            "Memory of the machine",
            "What it can give without swapping, and what has to stay free: below the "
            "reserve no jail is started.",
            "bytes", Limit(1 << 30, 512 << 20, low=True),
            Ask("sum(certosa_machine_available_bytes)", "available"),
            Ask("sum(certosa_machine_reserve_bytes)", "reserve"), to="certosa-pool",
        ),
        lines(
            "Disk", "Free where the data lies, and what a turn needs: below that none begins.",
            "bytes", Limit(1 << 30, 256 << 20, low=True),
            Ask("min(certosa_disk_free_bytes)", "free"), Ask("max(certosa_disk_needed_bytes)", "needed"),
            to="certosa-edge",
        ),
        lines(
            "Descriptors",
            "Open ones as a share of what each process may have. At 1 connections are refused.",
            "percentunit", Limit(0.6, 0.8),
            Ask("max by (process) (certosa_process_descriptors / certosa_process_descriptors_limit)",
                "{{process}}"), to="certosa-edge",
        ),
        lines(
            "Threads", "Of each process. A number that only grows is a leak.",
            "short", Limit(100, 200), Ask("sum by (process) (certosa_process_threads)", "{{process}}"),
            to="certosa-edge",
        ),
        lines(
            "Starts and ends",
            "Of the server's own processes and of jails, within five minutes; ends of core or "
            "egress without a restart by you are crashes.",
            "short", Limit(50, 200),
            Ask("sum by (event) (increase(certosa_spawner_events_total[5m]))", "{{event}}"),
            to="certosa-security",
        ),
        lines(
            "Lag of loops, p99",
            "How late hub, edge and egress run. Above 50 ms tokens of all users are late.",
            "s", Limit(0.05, 0.25), Ask(quantile(0.99, "certosa_loop_lag_seconds", "loop"), "{{loop}}"),
            to="certosa-edge",
        ),
    ]  # fmt: skip
