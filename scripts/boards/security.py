"""Security: what was refused, who tried, and whether the record of it is whole."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts.boards.parts import Ask, Limit, Panels, board, lines, number, rate

_CREDENTIALS = "credential_set|credential_deleted|credential_used|credential_refused|credential_renewed"


def security() -> Dashboard:
    """Of uid certosa-security."""
    return board(
        "certosa-security",
        "Jails that misbehave, wrong tokens, credentials, requests outside, and the audit log. Who it was "
        "stands in the audit log (certosa audit), never here.",
        [("At a glance", _glance()), ("Jails", _jails()), ("Access", _access()), ("Record", _record())],
    )


def _within(series: str, by: str) -> str:
    return f"sum by ({by}) (increase({series}[1h]))"


def _glance() -> Panels:
    return [
        number(
            "Jails that broke the protocol",
            "Within an hour. No honest worker does; see the audit log for whose.",
            "none", Limit(1, 5), Ask("sum(increase(certosa_edge_faults_total[1h]))", "faults"),
            to="certosa-edge",
        ),
        number(
            "Wrong tokens", "Within an hour. Many: somebody guesses, or a client has an old token.",
            "none", Limit(50, 500),
            Ask("sum(increase(certosa_logins_failed_total[1h]))", "failed"),
        ),
        number(
            "Credentials refused", "Within an hour: agents that wanted one for where it may not go.",
            "none", Limit(5, 50),
            Ask('sum(increase(certosa_audit_records_total{kind="credential_refused"}[1h]))', "refused"),
        ),
        number(
            "Requests outside refused", "Within an hour, by rules of hosts, methods, paths or addresses.",
            "none", Limit(20, 200),
            Ask('sum(increase(certosa_audit_records_total{kind="egress_refused"}[1h]))', "refused"),
            to="certosa-turns",
        ),
        number(
            "Records lost", "Of the audit log, since the start. Any is a gap in what can be proved.",
            "none", Limit(1, 2), Ask("sum(certosa_audit_lost_total)", "lost"),
        ),
        number(
            "Damage found",
            "By the audit log's own check of its chain, as the server started. Any: somebody, or the disk, "
            "changed it.",
            "none", Limit(1, 2), Ask('sum(certosa_audit_records_total{kind="log_damaged"})', "found"),
        ),
    ]  # fmt: skip


def _jails() -> Panels:
    return [
        lines(
            "Faults", "Jails that broke the protocol, within an hour, by how.",
            "short", Limit(1, 5), Ask(_within("certosa_edge_faults_total", "reason"), "{{reason}}"),
            to="certosa-edge",
        ),
        lines(
            "Limits met", "Jails that a limit ended, within an hour, by which.",
            "short", Limit(5, 20), Ask(_within("certosa_jail_limits_total", "limit"), "{{limit}}"),
            to="certosa-pool",
        ),
        lines(
            "Ends", "Jails that ended, within an hour, by why.",
            "short", Limit(200, 1000), Ask(_within("certosa_jails_ended_total", "reason"), "{{reason}}"),
            to="certosa-pool",
        ),
        lines(
            "Server's processes",
            "Ends of core, egress, the template, the guard, and jails that could not be built, "
            "within an hour. Without a restart by you each is a crash, or worse.",
            "short", Limit(1, 5),
            Ask(
                'sum by (event) (increase(certosa_spawner_events_total{event=~"core_ended|egress_ended|'
                'template_ended|guard_replaced|jail_failed|jail_build_failed|reload_failed"}[1h]))',
                "{{event}}",
            ), to="certosa-edge",
        ),
    ]  # fmt: skip


def _access() -> Panels:
    return [
        lines(
            "Refused over HTTP",
            "4xx by route: 401 are wrong tokens, 403 and 404 what is not theirs, 429 too much.",
            "reqps", Limit(5, 50),
            Ask(rate('certosa_http_requests_total{status="4xx"}', "route"), "{{route}}"), to="certosa-edge",
        ),
        lines(
            "Credentials", "Set, used, refused, renewed within an hour.",
            "short", Limit(200, 1000),
            Ask(_within(f'certosa_audit_records_total{{kind=~"{_CREDENTIALS}"}}', "kind"), "{{kind}}"),
        ),
        lines(
            "Requests outside", "Allowed and refused by the rules, within an hour.",
            "short", Limit(1000, 5000),
            Ask(_within('certosa_audit_records_total{kind=~"egress_allowed|egress_refused"}', "kind"),
            "{{kind}}"),
            to="certosa-turns",
        ),
        lines(
            "Vault's answers", "Questions that it refused (wrong token, not theirs) or failed at (the disk).",
            "ops", Limit(1, 10),
            Ask(rate('certosa_vault_operations_total{outcome!="ok"}', "outcome"), "{{outcome}}"),
            to="certosa-edge",
        ),
        lines(
            "Questions to users",
            "Approvals decided within an hour; many refused ones: an agent that tries things.",
            "short", Limit(50, 200), Ask(_within("certosa_approvals_total", "outcome"), "{{outcome}}"),
            to="certosa-turns",
        ),
        lines(
            "Refused at a limit", "Requests refused because a day's limit was reached, within an hour.",
            "short", Limit(20, 200),
            Ask(_within("certosa_usage_refused_total", "dimension"), "{{dimension}}"),
            to="certosa-turns",
        ),
    ]  # fmt: skip


def _record() -> Panels:
    return [
        lines(
            "What was recorded", "By the audit log within an hour, by kind.",
            "short", Limit(1000, 10000), Ask(_within("certosa_audit_records_total", "kind"), "{{kind}}"),
        ),
        lines(
            "Lost or refused by the disk",
            "Records lost, and groups of the audit log that came to nothing, within "
            "an hour. There should be none.",
            "short", Limit(1, 2), Ask("sum(increase(certosa_audit_lost_total[1h]))", "records lost"),
            Ask('sum(increase(certosa_store_failures_total{store="audit"}[1h]))', "groups failed"),
            to="certosa-edge",
        ),
        lines(
            "Acts of operators", "Users, tokens, providers, limits and configuration changed within an hour.",
            "short", Limit(50, 200),
            Ask(_within('certosa_audit_records_total{kind=~"(user|token|admin_token|provider|oauth|config|limits|'
                        'backup|pool)_.*"}', "kind"), "{{kind}}"),
        ),
    ]  # fmt: skip
