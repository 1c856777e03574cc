"""Whoever can write the store can change the ledger, and it shows: lines that are removed, changed, added, put elsewhere, or cut off at the end."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.control.record.chain import Chain
from federator.control.record.signer import HEAD_FILE, KEY_FILE, NOTES_FILE, Signer, is_signed
from federator.kernel.clock import ManualClock
from federator.kernel.errors import FederatorError
from federator.model.ledger import Head, LedgerState, Part, Seal, Verified, Verifier, head_of
from federator.ports import Put, Store, Transaction
from federator.store.memory import MemoryStore
from federator.store.sqlite import SqliteStore
from tests.support.dispatch import SharedClock, World, make_world

DAY_S = 86400.0


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A dispatcher with ten lines in its ledger, sealed in groups of four, four and two."""
    clock = SharedClock()
    store: Any = MemoryStore(clock)
    if request.param == "sqlite":
        store = SqliteStore.open(tmp_path / "store.db", ManualClock())
    world = await make_world(store, clock)
    await begin(world, tmp_path)
    await submit(world, 4)
    await submit(world, 4)
    await submit(world, 2)
    yield world
    await store.close()


async def begin(world: World, folder: Path) -> Chain:
    """The chain with a key in a folder, as `federator serve` has it."""
    world.core.chain.signer = Signer(folder)
    await world.core.chain.begin()
    return world.core.chain


async def submit(world: World, number: int) -> None:
    """So many lines more, and a seal over them."""
    for _ in range(number):
        world.clock.advance(1.0)
        await world.submit()
    await world.core.chain.seal()


async def parts(world: World) -> list[Part]:
    return [part async for part in world.core.chain.export()]


def verified(found: Iterable[Part], **options: Any) -> Verified:
    """What a person sees, of an export that went through a file."""
    verifier = Verifier(is_signed, **options)
    for part in found:
        verifier.take(msgspec.json.decode(msgspec.json.encode(part), type=Part))
    return verifier.end()


def said(found: Verified) -> str:
    return "; ".join(finding.text for finding in found.findings)


async def keys(store: Store, prefix: str) -> list[str]:
    return [item.key for item in (await store.range(prefix)).items]


async def put(store: Store, key: str, value: object) -> None:
    await store.commit(Transaction(puts=(Put(key, msgspec.json.encode(value)),)))


async def delete(store: Store, *names: str) -> None:
    await store.commit(Transaction(deletes=names))


async def test_a_ledger_that_nobody_touched_is_whole(world: World) -> None:
    found = verified(await parts(world), trusted=[world.core.chain.signer.public])
    assert said(found) == ""
    assert (found.lines, found.seals, found.unsealed, found.before) == (10, 3, 0, 0)
    await world.submit()
    assert verified(await parts(world)).unsealed == 1


async def remove_a_line(store: Store) -> str:
    key = (await keys(store, "ledger/"))[5]
    await delete(store, key)
    return f"line {key.removeprefix('ledger/')} is missing"


async def change_a_line(store: Store) -> str:
    key = (await keys(store, "ledger/"))[5]
    item = await store.get(key)
    assert item is not None
    await put(store, key, {**msgspec.json.decode(item.value), "who": "user:eve"})
    return f"line {key.removeprefix('ledger/')} was changed"


async def add_to_a_line(store: Store) -> str:
    key = (await keys(store, "ledger/"))[2]
    item = await store.get(key)
    assert item is not None
    await put(store, key, {**msgspec.json.decode(item.value), "usd": 5.0})
    return f"line {key.removeprefix('ledger/')} was changed"


async def exchange_two_lines(store: Store) -> str:
    one, two = (await keys(store, "ledger/"))[3:5]
    first, second = await store.get(one), await store.get(two)
    assert first is not None
    assert second is not None
    await put(store, one, {**msgspec.json.decode(second.value), "id": one.removeprefix("ledger/")})
    await put(store, two, {**msgspec.json.decode(first.value), "id": two.removeprefix("ledger/")})
    return f"line {one.removeprefix('ledger/')} was changed"


async def add_an_old_line(store: Store) -> str:
    key = (await keys(store, "ledger/"))[0]
    item = await store.get(key)
    assert item is not None
    line = msgspec.json.decode(item.value)
    forged = line["id"][:-1] + ("0" if line["id"][-1] != "0" else "1")
    await put(store, f"ledger/{forged}", {**line, "id": forged, "at": line["at"] - DAY_S})
    return f"line {forged} is in no seal: it was added"


async def cut_off_the_end(store: Store) -> str:
    """With all that tells of it in the store."""
    lines, seals = await keys(store, "ledger/"), await keys(store, "seal/")
    item, last = await store.get("ledger-state/"), await store.get(seals[1])
    assert item is not None
    assert last is not None
    await delete(store, *lines[8:], seals[2])
    state = msgspec.json.decode(item.value, type=LedgerState)
    head = msgspec.json.decode(last.value, type=Seal).head
    await put(store, "ledger-state/", msgspec.structs.replace(state, number=2, head=head))
    return "the ledger ends at seal 2, and seal 3 was signed: its end is missing"


async def take_out_a_seal_with_its_lines(store: Store) -> str:
    lines, seals = await keys(store, "ledger/"), await keys(store, "seal/")
    await delete(store, *lines[4:8], seals[1])
    return "seal 2 is missing: 3 follows"


async def begin_later(store: Store) -> str:
    """As if retention had dropped the first lines."""
    lines, seals = await keys(store, "ledger/"), await keys(store, "seal/")
    item, first = await store.get("ledger-state/"), await store.get(seals[0])
    assert item is not None
    assert first is not None
    head = msgspec.json.decode(first.value, type=Seal).head
    await delete(store, *lines[:4], seals[0])
    state = msgspec.json.decode(item.value, type=LedgerState)
    await put(store, "ledger-state/", msgspec.structs.replace(state, first=2, first_previous=head))
    return "what was dropped from the beginning is not signed by the key that it names"


async def write_a_seal_anew(store: Store) -> str:
    """With other lines, their hashes right, and the old signature."""
    seals = await keys(store, "seal/")
    item = await store.get(seals[2])
    assert item is not None
    seal = msgspec.json.decode(item.value, type=Seal)
    forged = msgspec.structs.replace(seal, lines=seal.lines[:1])
    await put(store, seals[2], msgspec.structs.replace(forged, head=head_of(forged)))
    return "seal 3 is not signed by the key that it names"


async def say_that_lines_are_from_before(store: Store) -> str:
    item = await store.get("ledger-state/")
    lines = await keys(store, "ledger/")
    assert item is not None
    state = msgspec.json.decode(item.value, type=LedgerState)
    before = lines[3].removeprefix("ledger/")
    await put(store, "ledger-state/", msgspec.structs.replace(state, before=before))
    return "where the chain began was changed in its state"


async def swap_two_heads(store: Store) -> str:
    """With their signatures, which are right, each for the other."""
    seals = await keys(store, "seal/")
    found = [await store.get(key) for key in seals[1:]]
    one, two = (msgspec.json.decode(item.value, type=Seal) for item in found if item is not None)
    for key, seal, other in ((seals[1], one, two), (seals[2], two, one)):
        await put(store, key, msgspec.structs.replace(seal, head=other.head, signature=other.signature))
    return "seal 2 was changed: its head is not that of its lines"


ATTACKS: list[Callable[[Store], Awaitable[str]]] = [
    remove_a_line, change_a_line, add_to_a_line, exchange_two_lines, add_an_old_line, cut_off_the_end,
    take_out_a_seal_with_its_lines, begin_later, write_a_seal_anew, say_that_lines_are_from_before,
    swap_two_heads,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.__name__)
async def test_what_is_done_to_the_store_is_named(
    world: World, tmp_path: Path, attack: Callable[[Store], Awaitable[str]]
) -> None:
    """Found by the dispatcher that runs on, and by the next one on the same store and with the same folder."""
    old = verified(await parts(world))
    store = world.core.records.store
    expected = await attack(store)
    again = await make_world(store, world.clock)  # type: ignore[arg-type]
    await begin(again, tmp_path)
    found = verified(await parts(again))
    assert expected in said(found)
    assert old.head is not None
    assert verified(await parts(again), kept=[old.head]).findings


async def test_another_key_is_found_by_who_knows_the_right_one(world: World, tmp_path: Path) -> None:
    """Somebody with the store and a key of his own writes all of it anew."""
    right = world.core.chain.signer.public
    store = world.core.records.store
    await delete(store, "ledger-state/", *await keys(store, "ledger/"), *await keys(store, "seal/"))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    forger = await make_world(store, world.clock)  # type: ignore[arg-type]
    await begin(forger, folder)
    await submit(forger, 3)
    assert said(verified(await parts(forger))) == ""
    assert "not a key that you trust" in said(verified(await parts(forger), trusted=[right]))
    own = await make_world(store, world.clock)  # type: ignore[arg-type]
    await begin(own, tmp_path)
    assert "seal 3 is not the one" in said(verified(await parts(own))) or "end is missing" in said(
        verified(await parts(own))
    )


async def test_an_export_that_is_cut_changed_or_shuffled_is_found(world: World) -> None:
    whole = await parts(world)
    lines = [number for number, part in enumerate(whole) if part.line is not None]
    assert "is missing" in said(verified(whole[: lines[3]] + whole[lines[3] + 1 :]))
    swapped = whole[:]
    swapped[lines[1]], swapped[lines[2]] = swapped[lines[2]], swapped[lines[1]]
    assert "out of order" in said(verified(swapped))
    assert "its end is missing" in said(verified(whole[:-1]))
    assert "is listed twice" in said(verified([*whole, whole[lines[0]], whole[lines[0]]]))


async def test_a_backup_that_is_put_back_shows_to_who_kept_a_head(world: World, tmp_path: Path) -> None:
    """The ledger goes on from the backup, is whole by itself, and lacks what was signed since."""
    store, kept = MemoryStore(world.clock), verified(await parts(world)).head
    assert kept is not None
    for prefix in ("ledger/", "ledger-state/", "seal/", "policies/"):
        for item in (await world.core.records.store.range(prefix)).items:
            if prefix != "ledger/" or item.key < (await keys(world.core.records.store, "ledger/"))[8]:
                await store.commit(Transaction(puts=(Put(item.key, item.value),)))
    await cut_off_the_end(store)
    restored = await make_world(store, world.clock)
    await begin(restored, tmp_path)
    assert (tmp_path / f"{HEAD_FILE}.3").is_file(), "the lost head is put aside"
    assert "its end is missing" in said(verified(await parts(restored)))
    (tmp_path / f"{HEAD_FILE}.3").unlink()
    assert said(verified(await parts(restored))) == "", (
        "once that is explained, and before anything new is signed"
    )
    await submit(restored, 5)
    assert "seal 3 is not the one whose head was kept" in said(verified(await parts(restored), kept=[kept]))
    assert said(verified(await parts(restored))) == ""


async def test_a_successor_seals_what_was_committed_when_its_predecessor_fell(
    world: World, tmp_path: Path
) -> None:
    await world.submit()
    await world.submit()
    successor = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await begin(successor, tmp_path)
    await successor.core.chain.seal()
    found = verified(await parts(successor))
    assert (said(found), found.lines, found.unsealed) == ("", 12, 0)


async def drop(world: World, name: str) -> str:
    await delete(world.core.records.store, f"ledger/{name}")
    return f"line {name} is missing"


async def alter(world: World, name: str) -> str:
    key = f"ledger/{name}"
    item = await world.core.records.store.get(key)
    assert item is not None
    await put(world.core.records.store, key, {**msgspec.json.decode(item.value), "who": "user:eve"})
    return f"line {name} was changed"


@pytest.mark.parametrize("attack", [drop, alter], ids=lambda each: each.__name__)
@pytest.mark.parametrize("which", [10, 11, 12], ids=["first", "middle", "last"])
@pytest.mark.parametrize("killed", [False, True], ids=["under-its-leader", "with-its-leader-killed"])
async def test_what_is_done_to_a_line_before_it_is_sealed_is_named(
    world: World, tmp_path: Path, attack: Callable[[World, str], Awaitable[str]], which: int, killed: bool
) -> None:
    """Somebody acts, and removes the line within the second, with or without the dispatcher that wrote it. All of them or the last are no different from one."""
    for _ in range(3):
        await world.submit()
    names = [key.removeprefix("ledger/") for key in await keys(world.core.records.store, "ledger/")]
    expected = await attack(world, names[which])
    if killed:
        world = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
        await begin(world, tmp_path)
    await submit(world, 1)
    found = verified(await parts(world))
    assert (said(found), found.seals) == (expected, 4)
    again = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await begin(again, tmp_path)
    await submit(again, 1)
    assert said(verified(await parts(again))) == expected, "and nothing is sealed twice"


async def test_the_first_lines_of_all_are_missed_too(tmp_path: Path) -> None:
    world = await make_world()
    await world.submit()
    await begin(world, tmp_path)
    await world.submit()
    await world.submit()
    names = [key.removeprefix("ledger/") for key in await keys(world.core.records.store, "ledger/")]
    expected = await drop(world, names[1])
    again = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await begin(again, tmp_path)
    await submit(again, 1)
    found = verified(await parts(again))
    assert (said(found), found.before, found.lines) == (expected, 1, 2)


async def test_what_another_dispatcher_has_sealed_meanwhile_is_not_missed(
    world: World, tmp_path: Path
) -> None:
    """The one that has written the lines leads again after another. What that one did not find is named then."""
    for _ in range(3):
        await world.submit()
    names = [key.removeprefix("ledger/") for key in await keys(world.core.records.store, "ledger/")]
    expected = await drop(world, names[11])
    folder = tmp_path / "other"
    folder.mkdir()
    other = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await begin(other, folder)
    await submit(other, 2)
    assert said(verified(await parts(other))) == "", "it cannot know"
    again = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await begin(again, tmp_path)
    await submit(again, 1)
    assert said(verified(await parts(again))) == expected


async def test_notes_of_lines_are_few_private_and_may_be_torn(world: World, tmp_path: Path) -> None:
    path = tmp_path / NOTES_FILE
    assert path.read_bytes() == b"", "all is sealed"
    await world.submit()
    await world.submit()
    assert (len(path.read_bytes().splitlines()), path.stat().st_mode & 0o777) == (2, 0o600)
    with path.open("ab") as notes:
        notes.write(b'[3,[["le')
    again = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await begin(again, tmp_path)
    await submit(again, 1)
    assert (said(verified(await parts(again))), path.read_bytes()) == ("", b"")


async def test_a_state_folder_that_is_put_back_as_a_whole_shows_to_who_has_an_export(tmp_path: Path) -> None:
    """Store, key, head and notes are those of a moment, and all agree. Only what was exported since does not."""
    folder, clock = tmp_path / "state", SharedClock()
    folder.mkdir()
    store: Any = SqliteStore.open(folder / "store.db", ManualClock())
    world = await make_world(store, clock)
    await begin(world, folder)
    await submit(world, 2)
    await store.close()
    shutil.copytree(folder, tmp_path / "copy")
    store = SqliteStore.open(folder / "store.db", ManualClock())
    world = await make_world(store, clock)
    await begin(world, folder)
    await submit(world, 2)
    exported = verified(await parts(world)).head
    assert exported is not None
    await store.close()

    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    store = SqliteStore.open(folder / "store.db", ManualClock())
    world = await make_world(store, clock)
    await begin(world, folder)
    assert said(verified(await parts(world))) == ""
    assert "its end is missing" in said(verified(await parts(world), kept=[exported]))
    await submit(world, 3)
    assert "seal 2 is not the one whose head was kept" in said(verified(await parts(world), kept=[exported]))
    await store.close()


async def test_one_that_was_replaced_cannot_go_on_with_the_chain(world: World, tmp_path: Path) -> None:
    """It has not noticed yet, and its seal would have the number of one that is there."""
    folder = tmp_path / "other"
    folder.mkdir()
    await world.submit()
    other = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await begin(other, folder)
    await submit(other, 2)
    with pytest.raises(FederatorError):
        await world.core.chain.seal()
    found = verified(await parts(other))
    assert (said(found), found.seals, len(found.keys)) == ("", 4, 2)


async def test_what_retention_drops_is_signed_and_the_rest_still_holds(world: World) -> None:
    chain, retention = world.core.chain, world.core.sweeper.retention
    retention.settings = msgspec.structs.replace(retention.settings, ledger_lines=8, promised_s=0.0)
    old = verified(await parts(world)).head
    world.clock.advance(DAY_S)
    await retention.sweep()
    found = verified(await parts(world), kept=[old] if old else [])
    assert (said(found), found.lines, chain.state.first, chain.state.dropped) == ("", 7, 1, 3)
    retention.settings = msgspec.structs.replace(retention.settings, ledger_lines=4)
    await retention.sweep()
    assert (chain.state.first, chain.state.dropped) == (2, 3)
    await submit(world, 1)
    found = verified(await parts(world), kept=[old] if old else [])
    assert (said(found), found.lines) == ("", 4)
    await delete(world.core.records.store, (await keys(world.core.records.store, "ledger/"))[0])
    assert "is missing" in said(verified(await parts(world)))


async def test_lines_from_before_there_was_a_chain_are_counted(tmp_path: Path) -> None:
    world = await make_world()
    for _ in range(3):
        await world.submit()
    await begin(world, tmp_path)
    await submit(world, 2)
    found = verified(await parts(world))
    assert (said(found), found.before, found.lines) == ("", 3, 2)
    await delete(world.core.records.store, (await keys(world.core.records.store, "ledger/"))[0])
    assert said(verified(await parts(world))) == "2 lines are left of 3 from before the chain"


def test_the_key_lies_beside_the_store_and_is_its_owners_alone(tmp_path: Path) -> None:
    first = Signer(tmp_path)
    first.keep(Head(7, "f" * 64))
    again = Signer(tmp_path)
    assert (again.public, again.last) == (first.public, Head(7, "f" * 64))
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
