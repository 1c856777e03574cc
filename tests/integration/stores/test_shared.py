"""Opening the shared store: one folder for all dispatchers, TLS where the cluster asks for it, and a restored store taken over."""

import asyncio
import datetime as dt
import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from federator.backups import adopt_store
from federator.control.maintenance.reconciliation import FLAG
from federator.control.record.leadership import ALIVE_KEY
from federator.kernel.clock import SystemClock
from federator.kernel.errors import Conflict, Invalid, NotFound, Unavailable
from federator.ports import Put, Transaction
from federator.settings import EtcdSettings, Settings, StoreSettings
from federator.store.blobs import MemoryBlobs
from federator.store.etcd import EtcdStore
from federator.store.shared import open_shared
from federator.store.sqlite import SqliteStore
from tests.support.waiting import until
from tests.testbeds.etcd import EtcdCluster

ROW = Transaction(puts=(Put("row", b"value"), Put("spec/1", b"outside")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), 1, durable=False) as cluster:
        yield cluster


def settings_for(cluster: EtcdCluster, folder: Path, prefix: str) -> EtcdSettings:
    return EtcdSettings(endpoints=cluster.endpoints, shared_dir=str(folder), prefix=f"/{prefix}", term_s=2.0)


# -------------------------------------------------------------------------------------------------------------- folder


async def test_dispatchers_with_one_folder_see_the_same(cluster: EtcdCluster, tmp_path: Path) -> None:
    settings = settings_for(cluster, tmp_path / "shared", "same")
    one, blobs = await open_shared(settings)
    await one.commit(ROW)
    digest = blobs.put(b"work directory")
    two, others = await open_shared(settings)
    assert (item := await two.get("spec/1")) is not None
    assert item.value == b"outside"
    assert others.get(digest) == b"work directory"
    await one.close()
    await two.close()


async def test_a_dispatcher_with_another_folder_does_not_start(cluster: EtcdCluster, tmp_path: Path) -> None:
    one, _ = await open_shared(settings_for(cluster, tmp_path / "shared", "other"))
    await one.commit(ROW)
    await one.close()
    with pytest.raises(Invalid, match="does not belong to this store"):
        await open_shared(settings_for(cluster, tmp_path / "its own", "other"))
    with pytest.raises(Invalid, match="does not belong to this store"):
        await open_shared(settings_for(cluster, tmp_path / "shared", "another store"))


async def test_without_the_extra_it_is_named(
    cluster: EtcdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "federator.store.etcd")
    monkeypatch.setitem(sys.modules, "aetcd", None)
    with pytest.raises(Invalid, match=r"pip install federator\[etcd\]"):
        await open_shared(settings_for(cluster, tmp_path, "extra"))


# ------------------------------------------------------------------------------------------------------------ adopting


async def test_adopting_on_etcd_marks_the_store_and_renames_it(cluster: EtcdCluster, tmp_path: Path) -> None:
    etcd = settings_for(cluster, tmp_path / "shared", "adopt")
    store, _ = await open_shared(etcd)
    await store.commit(ROW)
    before = store.incarnation
    adopted = await adopt_store(Settings(store=StoreSettings(etcd=etcd)))
    again, _ = await open_shared(etcd)
    assert again.incarnation == adopted != before
    assert await again.get(f"flag/{FLAG}") is not None
    await store.close()
    await again.close()


async def test_a_store_on_which_somebody_leads_is_not_adopted(cluster: EtcdCluster, tmp_path: Path) -> None:
    etcd = settings_for(cluster, tmp_path / "shared", "led")
    store, _ = await open_shared(etcd)
    before = store.incarnation
    renewing = asyncio.create_task(_renew(store))
    await until(lambda: store.get(ALIVE_KEY), "the first sign of life")
    with pytest.raises(Conflict, match="stop all dispatchers"):
        await adopt_store(Settings(store=StoreSettings(etcd=etcd)))
    renewing.cancel()
    again, _ = await open_shared(etcd)
    assert again.incarnation == before
    assert await again.get(f"flag/{FLAG}") is None
    await store.close()
    await again.close()


async def _renew(store: EtcdStore) -> None:
    """As a leader does."""
    while True:
        await store.commit(Transaction(puts=(Put(ALIVE_KEY, b"a", 2.0),)))
        await asyncio.sleep(0.3)


async def test_an_embedded_store_is_adopted_while_nobody_has_it(tmp_path: Path) -> None:
    settings = Settings(state_dir=str(tmp_path))
    with pytest.raises(NotFound):
        await adopt_store(settings)
    store = SqliteStore.open(tmp_path / "store.db", SystemClock())
    before = store.incarnation
    with pytest.raises(Unavailable, match="in use"):
        await adopt_store(settings)
    await store.close()
    adopted = await adopt_store(settings)
    again = SqliteStore.open(tmp_path / "store.db", SystemClock())
    assert again.incarnation == adopted != before
    assert await again.get(f"flag/{FLAG}") is not None
    await again.close()


# ----------------------------------------------------------------------------------------------------------------- TLS


class Authority:
    """Signs certificates for loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed("authority", self._key, ca=True)
        self._write("ca.pem", self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> None:
        """Write NAME.pem and NAME.key."""
        key = ec.generate_private_key(ec.SECP256R1())
        self._write(f"{name}.pem", self._signed(name, key).public_bytes(serialization.Encoding.PEM))
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self._write(f"{name}.key", key.private_bytes(pem, pkcs8, serialization.NoEncryption()))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, *, ca: bool = False) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = dt.datetime.now(dt.UTC)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, data: bytes) -> None:
        (self.folder / name).write_bytes(data)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    for name in ("server", "client"):
        authority.issue(name)
    return authority


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[EtcdCluster]:
    options = ["--cert-file", authority.path("server.pem"), "--key-file", authority.path("server.key")]
    options += ["--client-cert-auth", "--trusted-ca-file", authority.path("ca.pem")]
    folder = tmp_path_factory.mktemp("secured")
    with EtcdCluster(folder, 1, durable=False, scheme="https", options=options) as cluster:
        yield cluster


async def test_tls_with_a_certificate_of_ours(secured: EtcdCluster, authority: Authority) -> None:
    settings = EtcdSettings(
        endpoints=secured.endpoints,
        shared_dir="",
        ca_file=authority.path("ca.pem"),
        cert_file=authority.path("client.pem"),
        key_file=authority.path("client.key"),
    )
    store = await EtcdStore.open(settings, MemoryBlobs())
    await store.commit(ROW)
    assert await store.get("row") is not None
    await store.close()


async def test_without_what_the_cluster_asks_for_nothing_is_said_to_it(
    secured: EtcdCluster, authority: Authority, tmp_path: Path
) -> None:
    trusting = EtcdSettings(
        endpoints=secured.endpoints, shared_dir="", patience_s=0.5, ca_file=authority.path("ca.pem")
    )
    with pytest.raises(Unavailable, match="does not answer"):
        await EtcdStore.open(trusting, MemoryBlobs())
    Authority(tmp_path)
    strange = EtcdSettings(
        endpoints=secured.endpoints, shared_dir="", patience_s=0.5, ca_file=str(tmp_path / "ca.pem")
    )
    with pytest.raises(Unavailable, match="does not answer"):
        await EtcdStore.open(strange, MemoryBlobs())
    with pytest.raises(Invalid, match=r"store\.etcd\.ca_file"):
        await EtcdStore.open(
            EtcdSettings(endpoints=secured.endpoints, shared_dir="", ca_file="/nowhere.pem"), MemoryBlobs()
        )
