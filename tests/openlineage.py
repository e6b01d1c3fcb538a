"""A receiver of OpenLineage events, and the published schema that they are judged by."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parent / "data" / "openlineage"
"""Of github.com/OpenLineage/OpenLineage, folder ``spec``, Apache License 2.0."""


FORMATS = FormatChecker()
"""jsonschema brings no check for two of the formats that the schema names."""


@FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return datetime.fromisoformat(str(value)).tzinfo is not None


@FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    return bool(urlsplit(str(value)).scheme)


class Schema:
    """Judge events by the published schema: the event, and each facet by the file that its ``_schemaURL`` names."""

    def __init__(self) -> None:
        self._files = {path.stem: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
        self._registry: Registry[Any] = Registry().with_resources(
            (schema["$id"], Resource.from_contents(schema)) for schema in self._files.values()
        )

    def faults(self, event: dict[str, Any]) -> list[str]:
        """Return every breach of the schema."""
        found = self._of(event, self._files["OpenLineage"])
        for key, facet in facets_of(event):
            name = facet["_schemaURL"].rpartition("/")[2]
            file = self._files["OpenLineage" if "/OpenLineage.json#" in facet["_schemaURL"] else name]
            found += [f"{key}: {fault}" for fault in self._of(facet, {"$ref": f"{file['$id']}#/$defs/{name}"})]
        return found

    def _of(self, value: object, schema: dict[str, Any]) -> list[str]:
        validator = Draft202012Validator(schema, registry=self._registry, format_checker=FORMATS)
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def facets_of(value: object) -> list[tuple[str, dict[str, Any]]]:
    """Return every facet of an event, with its key."""
    found: list[tuple[str, dict[str, Any]]] = []
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("facets", "inputFacets", "outputFacets"):
                found += part.items()
            found += facets_of(part)
    elif isinstance(value, list):
        for part in value:
            found += facets_of(part)
    return found


class Receiver:
    """An HTTP receiver in this process. It keeps what it acknowledges.

    ``answer`` is the status of each answer. ``hangs``: seconds before it answers.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.refused = 0
        self.answer, self.hangs = 201, 0.0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                released.wait(receiver.hangs)
                if receiver.answer < 300:
                    receiver.events.append(json.loads(body))
                else:
                    receiver.refused += 1
                self.send_response(receiver.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        released = self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the acknowledged events of a type."""
        return [event for event in self.events if event["eventType"] == kind]

    def epochs(self) -> list[int]:
        """Return the numbers of the epochs that were acknowledged as complete, in order of arrival."""
        return [event["run"]["facets"]["onceonly_epoch"]["epoch"] for event in self.of("COMPLETE")]

    def await_that(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until something holds."""
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"received: {[(e['eventType'], e['run']['runId']) for e in self.events]}"
            time.sleep(0.02)
