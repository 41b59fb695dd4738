"""`GET /demo`: a page on which a person sees a job outlive a tab. Only where AIJOBS_DEMO_PAGE is on.

The files beside this one are sent as they are. The page uses the API as any page of a customer would, and nothing else.
"""

from __future__ import annotations

from importlib import resources

from flask import Flask, Response

# Nothing from elsewhere, nothing inline, in no frame.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_FILES = {
    "/demo": ("page.html", "text/html; charset=utf-8"),
    "/demo/page.css": ("page.css", "text/css; charset=utf-8"),
    "/demo/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/demo/requests.js": ("requests.js", "text/javascript; charset=utf-8"),
    "/demo/job_stream.js": ("job_stream.js", "text/javascript; charset=utf-8"),
    "/demo/submission.js": ("submission.js", "text/javascript; charset=utf-8"),
    "/demo/absence.js": ("absence.js", "text/javascript; charset=utf-8"),
    "/demo/icon.svg": ("icon.svg", "image/svg+xml"),
}


def install(app: Flask) -> None:
    for address, (name, content_type) in _FILES.items():
        _add(app, address, name, content_type)


def _add(app: Flask, address: str, name: str, content_type: str) -> None:
    content = resources.files(__name__).joinpath(name).read_bytes()

    def send() -> Response:
        return Response(content, headers=_HEADERS, content_type=content_type)

    app.add_url_rule(address, f"demo_{name.replace('.', '_')}", send)
