"""A server that speaks S3, on this machine: moto's, in this process, for tests of what talks to a bucket."""

import atexit
import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from federator.settings import S3Settings
from federator.store.bucket import Bucket, Server

BUCKET = "federation"
KEY, SECRET = "AKIATESTBED", "the-secret-of-the-testbed"
"""Credentials of the settings; the server takes any, and a test may look for these."""


@cache
def shared_server() -> str:
    """Its URL; it lives as long as this process."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def client(endpoint: str) -> Any:
    """boto3's own, to look at what is there."""
    session = boto3.session.Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    return session.client("s3", endpoint_url=endpoint, region_name="us-east-1")


def settings_for(folder: Path, endpoint: str, **fields: Any) -> S3Settings:
    """Of a bucket that is there, below a prefix of its own; the credentials are in a file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "s3-credentials"
    file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    s3 = client(endpoint)
    s3.create_bucket(Bucket=BUCKET)
    s3.close()
    given: dict[str, Any] = {"bucket": BUCKET, "prefix": secrets.token_hex(4), "credentials_file": str(file)}
    return S3Settings(**{**given, "endpoint": endpoint, "path_style": True, "patience_s": 2.0, **fields})


@cache
def shared_client() -> Any:
    """A client of the shared server: to make one takes half a second."""
    return client(shared_server())


@cache
def _server() -> Server:
    folder = Path(tempfile.mkdtemp(prefix="s3-"))
    atexit.register(shutil.rmtree, folder)
    return Server(settings_for(folder, shared_server()))


def bucket_of_its_own() -> Bucket:
    """A part of the shared server's bucket that no other test has."""
    shared_client().create_bucket(Bucket=BUCKET)  # another test may have reset the server
    return Bucket(_server(), secrets.token_hex(4))
