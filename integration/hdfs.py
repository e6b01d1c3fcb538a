"""A small HDFS of this machine: one name node and one data node in a JVM that ends with this process."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.webhdfs import WebHDFS
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from pyspark.sql import DataFrame

from onceonly.spark.jars import Artifact, fetched, jar_of_pyspark, java_program

_WITH_HDFS = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jakarta.servlet-api",
    "javax.servlet-api",
    "jcl-over-slf4j",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
)


@contextmanager
def small_hdfs(folder: Path) -> Generator[str]:
    """Run one; yields its root, ``hdfs://host:port``, which Spark reaches as it is.

    So does fsspec meanwhile: its own driver wants Hadoop's native library, so ``hdfs:`` is led to the same server's
    HTTP interface.
    """
    folder.mkdir(parents=True)
    with (folder / "jvm.log").open("w") as log:
        port, secret = launch_gateway(
            classpath=os.pathsep.join(map(str, _jars())),
            javaopts=["-XX:TieredStopAtLevel=1", "-Xmx256m"],
            java_path=java_program(),
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            enable_auth=True,
        )
        parameters = GatewayParameters(port=port, auth_token=secret, auto_convert=True)
        gateway = JavaGateway(gateway_parameters=parameters)
        jvm: Any = gateway.jvm
        settings = jvm.org.apache.hadoop.conf.Configuration()
        settings.set("dfs.permissions.enabled", "false")
        builder = getattr(jvm, "org.apache.hadoop.hdfs.MiniDFSCluster$Builder")
        cluster = builder(settings, jvm.java.io.File(str(folder / "data"))).numDataNodes(1).build()
        try:
            cluster.waitActive()
            _lead_fsspec_to(int(cluster.getHttpUri(0).rpartition(":")[2]))
            yield str(cluster.getURI().toString())
        finally:
            cluster.shutdown()
            gateway.shutdown()


def _jars() -> list[Path]:
    """A small HDFS of the version whose client PySpark brings, that client, and what both log with.

    Raises:
        ConfigurationError: E108, PySpark is not installed, or lacks one of them; E110, the rest cannot be fetched.
    """
    with_it = [jar_of_pyspark(f"{name}-[0-9]*.jar") for name in _WITH_HDFS]
    version = with_it[0].stem.rpartition("-")[2]
    return [*with_it, *fetched([Artifact("org.apache.hadoop", "hadoop-client-minicluster", version)], None)]


def _lead_fsspec_to(http: int) -> None:
    class Hdfs(WebHDFS):
        protocol = "hdfs"

        @staticmethod
        def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
            return {"host": "127.0.0.1", "port": http, "user": "root"}

    fsspec.register_implementation("hdfs", Hdfs, clobber=True)


class Reaching:
    """``transform=`` of a callback that is sent elsewhere: by its arrival that process reaches the HDFS by fsspec, too.

    Args:
        http: port of the server's HTTP interface.
    """

    def __init__(self, http: int) -> None:
        self._http = http
        _lead_fsspec_to(http)

    def __reduce__(self) -> tuple[type[Reaching], tuple[int]]:
        return Reaching, (self._http,)

    def __call__(self, df: DataFrame) -> DataFrame:
        return df
