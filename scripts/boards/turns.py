"""Turns and providers: what users wait for, and whose fault it is."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts.boards.parts import Ask, Limit, Panels, board, distribution, lines, quantile, quantiles, rate

_FEW = Limit(0.1, 1)  # a second, of what should not happen


def turns() -> Dashboard:
    """Of uid certosa-turns."""
    return board(
        "certosa-turns",
        "Turns from the request to their end, model servers that answer them, and what users may use.",
        [("Turns", _turns()), ("Providers", _providers()), ("Requests outside and limits", _rest())],
    )


def _turns() -> Panels:
    return [
        lines(
            "Ends",
            "Turns by how they ended. stop is good; upstream_* are model servers, internal and worker are "
            "ours, limit and quota what you set.",
            "ops", Limit(50, 100), Ask(rate("certosa_turns_ended_total", "outcome"), "{{outcome}}"),
            to="certosa-overview",
        ),
        lines(
            "Refused",
            "Turns not started, by why: server_turns and user_turns are limits of [hub], loop_lag says "
            "that core is late, disk_full that the disk is, disk_quota that a home is.",
            "ops", _FEW, Ask(rate("certosa_turns_refused_total", "reason"), "{{reason}}"),
            to="certosa-overview",
        ),
        lines(
            "Running", "Against [hub] max_turns; at the limit further ones are refused.",
            "short", Limit(200, 256), Ask("sum(certosa_turns_running)", "running"),
            Ask("sum(certosa_turns_limit)", "limit"), to="certosa-overview",
        ),
        lines(
            "Failed",
            "Share of turns that ended with an error which is not the user's: the recording rules say "
            "which those are. The alert CertosaTurnsFailing looks at this.",
            "percentunit", Limit(0.01, 0.05),
            Ask(
                "sum(certosa:turns_failed:rate5m) / clamp_min(sum(certosa:turns_ended:rate5m), 1e-9)",
                "failed",
            ),
            to="certosa-edge",
        ),
        lines(
            "First token",
            "From the request to the first piece of its answer: jail's start, model server, and "
            "us. Compare with the providers' own below: what is between is ours.",
            "s", Limit(2, 5), *quantiles("certosa_first_token_seconds"), to="certosa-pool",
        ),
        lines(
            "Whole turns",
            "From the request to the end, tools and all. Points are requests: their request_id is in "
            "the logs.",
            "s", Limit(60, 300), *quantiles("certosa_turn_seconds"), to="certosa-edge",
        ),
    ]  # fmt: skip


def _providers() -> Panels:
    return [
        lines(
            "Tries", "Requests to providers by how they ended; one chat may need several.",
            "reqps", Limit(50, 100),
            Ask(rate("certosa_provider_requests_total", "provider, outcome"), "{{provider}} {{outcome}}"),
        ),
        lines(
            "Tries that fail",
            "Share of them by provider, cancelled ones left out: those are users who went.",
            "percentunit", Limit(0.05, 0.2),
            Ask("max by (provider) (certosa:provider_failures:ratio_rate5m)", "{{provider}}"),
        ),
        lines(
            "First piece, p95", "From the request to a provider to its answer's first piece, by provider.",
            "s", Limit(2, 5),
            Ask(quantile(0.95, "certosa_provider_first_token_seconds", "provider"), "{{provider}}", True),
        ),
        lines(
            "Whole answers, p95", "From the request to a provider to its end, by provider.",
            "s", Limit(60, 300),
            Ask(quantile(0.95, "certosa_provider_request_seconds", "provider"), "{{provider}}", True),
        ),
        lines(
            "Tokens",
            "As the ledger counts them, by provider and direction. The threshold is 50 streams at 20 "
            "tokens a second.",
            "ops", Limit(1000, 4000),
            Ask(rate("certosa_tokens_total", "provider, direction"), "{{provider}} {{direction}}"),
        ),
        lines(
            "Under way", "Requests to providers that run now.",
            "short", Limit(200, 256),
            Ask("sum by (provider) (certosa_provider_requests_running)", "{{provider}}"),
        ),
        lines(
            "Breakers",
            "1 while a provider's breaker is open (nothing is sent to it) or half open (one is tried).",
            "short", Limit(0.5, 1),
            Ask('max by (provider, state) (certosa_provider_breaker{state!="closed"})',
            "{{provider}} {{state}}"),
        ),
        lines(
            "Again and elsewhere", "Tries after the first, and chats that went on to another provider.",
            "ops", _FEW, Ask(rate("certosa_provider_retries_total", "provider"), "{{provider}} again"),
            Ask(rate("certosa_provider_fallbacks_total", "provider"), "{{provider}} given up for another"),
        ),
        distribution(
            "First token",
            "How many requests waited how long: two bands are two kinds of model, or cold and warm.",
            "s", Limit(2, 5), Ask(rate("certosa_first_token_seconds_bucket", "le"), "{{le}}"), width=24,
        ),
    ]  # fmt: skip


def _rest() -> Panels:
    return [
        lines(
            "Requests of agents outside", "By how they ended; refused ones met a rule.",
            "reqps", Limit(20, 50), Ask(rate("certosa_fetches_total", "outcome"), "{{outcome}}"),
            to="certosa-security",
        ),
        lines(
            "Their time, p95", "From begin to end, and how many run.",
            "s", Limit(10, 60), Ask(quantile(0.95, "certosa_fetch_seconds"), "p95", True),
            Ask("sum(certosa_fetches_running)", "running (number)"), to="certosa-security",
        ),
        lines(
            "Limits of a day",
            "Users who reached a soft limit, and requests refused at a hard one, within an hour.",
            "short", Limit(1, 20),
            Ask("sum by (dimension) (increase(certosa_usage_soft_limits_total[1h]))", "soft: {{dimension}}"),
            Ask("sum by (dimension) (increase(certosa_usage_refused_total[1h]))", "refused: {{dimension}}"),
        ),
        lines(
            "Questions to users",
            "Approvals that were decided within an hour, by how; expired ones kept a turn "
            "waiting for nothing.",
            "short", Limit(50, 200),
            Ask("sum by (outcome) (increase(certosa_approvals_total[1h]))", "{{outcome}}"),
            to="certosa-security",
        ),
    ]  # fmt: skip
