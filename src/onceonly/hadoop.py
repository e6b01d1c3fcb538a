"""Reads a checkpoint's files through the running session's own Hadoop: ``hdfs://``, ``s3a://``, ``abfss://`` ...

What Spark can write its checkpoint to can be read here too, with the same login and the same jars; an fsspec driver
of the same store need not be installed on the driver's machine.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceonly.frames import class_in
from onceonly_checkpoints.storage import visible, without_secrets

if TYPE_CHECKING:
    from pyspark import SparkContext

_MISSING = "java.io.FileNotFoundException"


class HadoopFiles:
    """The reading half of a storage, on any of Hadoop's file systems.

    Args:
        context: of the running application.
        session: the JVM's ``SparkSession``, whose settings lead to the store.
        url: the root as Spark spells it.
    """

    def __init__(self, context: SparkContext, session: Any, url: str) -> None:
        self._path = class_in(context, "org.apache.hadoop.fs.Path")
        self._root = url.rstrip("/")
        self._fs = self._path(self._root).getFileSystem(session.sessionState().newHadoopConf())

    @property
    def url(self) -> str:
        """The root as it was given, without credentials."""
        return without_secrets(self._root)

    def names(self, directory: str) -> tuple[str, ...]:
        """Names in a directory, sorted, without hidden ones; empty where there is no such directory."""
        try:
            with _missing_is_missing(directory):
                return visible(status.getPath().getName() for status in self._fs.listStatus(self._at(directory)))
        except FileNotFoundError:
            return ()

    def read(self, path: str) -> bytes:
        """Content of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        with _missing_is_missing(path):
            stream = self._fs.open(self._at(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return bool(self._fs.exists(self._at(path)))

    def _at(self, path: str) -> Any:
        return self._path(f"{self._root}/{path}" if path else self._root)


@contextmanager
def _missing_is_missing(path: str) -> Generator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != _MISSING:
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
