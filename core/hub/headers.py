"""The headers that every answer has."""

HEADERS = {
    "Server": "certosa",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    # pages of other sites may not embed an answer; those of configured origins ask by CORS
    "Cross-Origin-Resource-Policy": "same-origin",
}
