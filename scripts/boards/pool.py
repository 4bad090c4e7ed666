"""Pool memory: what jails hold, how that spreads, why they come and go, and when room runs out."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts.boards.parts import Ask, Limit, Panels, board, distribution, lines, number, quantile, rate

_ALIVE = 'sum(certosa_pool_jails{state!="queued"})'
_JAIL = "sum by (le) (certosa_pool_jail_memory_bytes_bucket)"
_MEMORY, _BUDGET = "sum(certosa_pool_memory_bytes)", "sum(certosa_pool_memory_budget_bytes)"


def pool() -> Dashboard:
    """Of uid certosa-pool."""
    return board(
        "certosa-pool",
        "The memory of users' jails against what they may hold. Proportional sizes: what several share "
        "counts in parts, so that jails add up. Sampled: busy jails every ten seconds, idle ones every "
        "five minutes.",
        [
            ("Against the budget", _budget()),
            ("Each jail", _each()),
            ("Starts and evictions", _moves()),
            ("Forecast", _forecast()),
        ],
    )


def _budget() -> Panels:
    return [
        number(
            "Of the budget", "What jails hold together. Near 100 % idle ones go early and new ones wait.",
            "percentunit", Limit(0.8, 0.95), Ask(f"{_MEMORY} / {_BUDGET}", "held"), to="certosa-overview",
        ),
        number(
            "Room for further jails",
            "How many more fit, at the present size of one and under max_jails. At 0 "
            "somebody idle has to go first.",
            "none", Limit(10, 1, low=True), Ask(f"sum(certosa_pool_capacity_jails) - {_ALIVE}", "jails"),
        ),
        number(
            "Waiting for room",
            "Users whose jail has not been started yet. Lasting: the machine is too small.",
            "none", Limit(1, 10), Ask('sum(certosa_pool_jails{state="queued"})', "queued"),
        ),
        number(
            "A further jail takes", "What the pool expects of the next one, from those there are.",
            "bytes", Limit(64 << 20, 128 << 20), Ask("max(certosa_pool_typical_jail_bytes)", "expected"),
        ),
        number(
            "Machine, available",
            "What it can give without swapping, less what has to stay free. Below 0 none is "
            "started.",
            "bytes", Limit(1 << 30, 128 << 20, low=True),
            Ask("sum(certosa_machine_available_bytes) - sum(certosa_machine_reserve_bytes)", "to spare"),
        ),
        number(
            "Draining", "Whether somebody drains the pool (certosa pool drain): then none is started.",
            "bool_yes_no", Limit(1, 2), Ask("max(certosa_pool_draining)", "draining"),
        ),
        lines(
            "Total against budget",
            "The budget is [pool] memory_bytes, or where that is 0 what the machine has "
            "to spare beside the reserve; then it moves with everything else on the machine.",
            "bytes", Limit(8 << 30, 16 << 30), Ask(_MEMORY, "held by jails"), Ask(_BUDGET, "budget"),
            Ask("sum(certosa_machine_available_bytes)", "machine, available"),
            Ask("sum(certosa_machine_memory_bytes)", "machine, all"), to="certosa-overview",
        ),
        lines(
            "Shared against private",
            "Private memory is each jail's own; the rest are pages of the template that "
            "jails share. A private part that grows means that warm jails are used, or leak.",
            "bytes", Limit(8 << 30, 16 << 30), Ask("sum(certosa_pool_private_memory_bytes)", "private"),
            Ask(f"clamp_min({_MEMORY} - sum(certosa_pool_private_memory_bytes), 0)", "shared"), stacked=True,
        ),
    ]  # fmt: skip


def _each() -> Panels:
    return [
        distribution(
            "Memory of each jail",
            "How many jails hold how much, over time. A band that rises is a leak in all, a "
            "few cells far up are single users with large programs: certosa pool show --sort memory names "
            "them.",
            "bytes", Limit(128 << 20, 256 << 20), Ask(_JAIL, "{{le}}"),
        ),
        lines(
            "Memory of a jail", "Median, the largest twentieth, the largest; bounded by the buckets' steps.",
            "bytes", Limit(128 << 20, 256 << 20),
            *(Ask(f"histogram_quantile({q}, {_JAIL})", f"p{q * 100:g}") for q in (0.5, 0.95, 1)),
            Ask("max(certosa_pool_typical_jail_bytes)", "expected of a further one"),
        ),
        lines(
            "Jails", "By state, with the most that may be there and the most that fit.",
            "short", Limit(400, 500), Ask("sum by (state) (certosa_pool_jails)", "{{state}}"),
            Ask("sum(certosa_pool_jails_limit)", "limit"),
            Ask("sum(certosa_pool_capacity_jails)", "fit into memory"), to="certosa-overview",
        ),
        lines(
            "Processes in jails",
            "Of all, and for each jail: much above 2 are users who leave programs running.",
            "short", Limit(1000, 4000), Ask("sum(certosa_pool_processes)", "all"),
            Ask(f"sum(certosa_pool_processes) / clamp_min({_ALIVE}, 1)", "a jail"), to="certosa-security",
        ),
    ]  # fmt: skip


def _moves() -> Panels:
    return [
        lines(
            "Starts", "By how: fork from the warm template takes milliseconds, exec starts an interpreter. "
            "Only exec where fork was chosen: the template cannot be used, the log says why.",
            "ops", Limit(5, 20), Ask(rate("certosa_jail_spawn_seconds_count", "start"), "{{start}}"),
            to="certosa-overview",
        ),
        lines(
            "Time of a start", "From asking to the worker's first frame, and of it the building.",
            "s", Limit(0.25, 1),
            Ask(quantile(0.5, "certosa_jail_start_seconds"), "start, p50"),
            Ask(quantile(0.95, "certosa_jail_start_seconds"), "start, p95"),
            Ask(quantile(0.95, "certosa_jail_spawn_seconds", "start"), "building by {{start}}, p95"),
        ),
        lines(
            "Evictions", "Idle jails given up, within five minutes: idle too long; room for somebody; the "
            "pool's memory; the machine's (pressure); an operator. Only idle is good.",
            "short", Limit(20, 100),
            Ask("sum by (reason) (increase(certosa_pool_evictions_total[5m]))", "{{reason}}"),
        ),
        lines(
            "Ends",
            "Jails that ended, within five minutes, by why. Faults are jails that broke the protocol, "
            "limits those that were ended by one.",
            "short", Limit(20, 100),
            Ask("sum by (reason) (increase(certosa_jails_ended_total[5m]))", "{{reason}}"),
            to="certosa-security",
        ),
        lines(
            "Limits met",
            "Jails that a limit ended within five minutes, by which (memory, processes, disk...): "
            "docs/operating.md says how to raise one for a user.",
            "short", Limit(1, 10),
            Ask("sum by (limit) (increase(certosa_jail_limits_total[5m]))", "{{limit}}"),
            to="certosa-security",
        ),
        lines(
            "Refused", "Jails that were wanted and not started, within five minutes: their users got 429.",
            "short", Limit(1, 10),
            Ask("sum by (reason) (increase(certosa_pool_refused_total[5m]))", "{{reason}}"),
            to="certosa-turns",
        ),
        lines(
            "Wait for room", "What a jail waited before its start. Mostly 0; else the pool is full.",
            "s", Limit(0.5, 5), Ask(quantile(0.5, "certosa_pool_wait_seconds"), "p50"),
            Ask(quantile(0.95, "certosa_pool_wait_seconds"), "p95"),
        ),
    ]  # fmt: skip


def _forecast() -> Panels:
    return [
        lines(
            "Memory in four hours",
            "The last hour drawn on for four, against the budget. A rush in the morning "
            "looks like the end of the world: read it with the jails' number.",
            "bytes", Limit(8 << 30, 16 << 30), Ask(_MEMORY, "now"),
            Ask("clamp_min(sum(predict_linear(certosa_pool_memory_bytes[1h], 14400)), 0)", "in four hours"),
            Ask(_BUDGET, "budget"),
        ),
        lines(
            "Jails against capacity",
            "Alive ones against what the model of capacity says fits: budget by the "
            "size of one, at most the limit. Capacity that falls while jails stay: each of them grows.",
            "short", Limit(400, 500), Ask(_ALIVE, "alive"),
            Ask("sum(certosa_pool_capacity_jails)", "capacity"),
            Ask("sum(certosa_pool_jails_limit)", "limit"),
        ),
        lines(
            "Machine in four hours", "Available memory, drawn on likewise, against the reserve.",
            "bytes", Limit(1 << 30, 512 << 20, low=True),
            Ask(
                "clamp_min(sum(predict_linear(certosa_machine_available_bytes[1h], 14400)), 0)",
                "in four hours",
            ),
            Ask("sum(certosa_machine_available_bytes)", "now"),
            Ask("sum(certosa_machine_reserve_bytes)", "reserve"),
        ),
        lines(
            "Used capacity",
            "Alive jails as a share of capacity, and its highest of the last day: what to buy "
            "the next machine by.",
            "percentunit", Limit(0.8, 0.95), Ask("max(certosa:pool_capacity_used:ratio)", "now"),
            Ask("max(max_over_time(certosa:pool_capacity_used:ratio[1d]))", "highest of a day"),
        ),
    ]  # fmt: skip
