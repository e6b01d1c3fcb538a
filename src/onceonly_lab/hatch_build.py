"""Build hook of both distributions: README links for an index, and URLs."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.core import ProjectMetadata
from hatchling.metadata.plugin.interface import MetadataHookInterface

CHECKOUT = Path(__file__).parents[2]
_FENCED = re.compile(r"(^```.*?^```\s*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<label>[^\]]*)\]\((?![\w+.-]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


class PublishedMetadata(MetadataHookInterface):
    """Set ``readme`` and ``urls``, or in an unpacked sdist those of them that PKG-INFO lacks."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the fields that are dynamic."""
        settings = ProjectMetadata(str(CHECKOUT), None).config.get("tool", {}).get("onceonly", {})
        repository, tag = settings.get("repository", ""), f"v{metadata['version']}"
        if "readme" in metadata["dynamic"]:
            text = Path(self.root, "README.md").read_text(encoding="utf-8")
            folder = os.path.relpath(self.root, CHECKOUT)
            linked = absolute_links(text, repository=repository, tag=tag, folder=folder)
            metadata["readme"] = {"content-type": "text/markdown", "text": linked}
        if "urls" in metadata["dynamic"]:
            metadata["urls"] = project_urls(repository, tag)


def absolute_links(text: str, *, repository: str, tag: str, folder: str) -> str:
    """Replace relative links by addresses in the repository, or by their labels if it has no address yet."""

    def replace(link: re.Match[str]) -> str:
        if not repository:
            return link["label"]
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['label']}]({repository}/{kind}/{tag}/{path}{link['anchor'] or ''})"

    parts = _FENCED.split(text)
    return "".join(part if index % 2 else _LINK.sub(replace, part) for index, part in enumerate(parts))


def project_urls(repository: str, tag: str) -> dict[str, str]:
    """Return the links that an index shows beside the README."""
    if not repository:
        return {}
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/tree/{tag}/docs",
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Source": f"{repository}/tree/{tag}",
    }
