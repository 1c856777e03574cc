"""Which dispatcher an agent dials."""

from federator_agent.dialer import Addresses


def test_one_that_works_is_dialled_again_and_after_one_that_does_not_comes_the_next() -> None:
    addresses = Addresses("http://a/, http://b,http://c")
    assert addresses.present == "http://a"
    assert not addresses.failed()
    assert addresses.present == "http://b"
    addresses.worked()
    assert addresses.present == "http://b"


def test_after_all_have_failed_it_is_time_for_a_pause_and_they_come_round_again() -> None:
    addresses = Addresses("http://a,http://b")
    dialled = []
    pauses = []
    for _ in range(4):
        dialled.append(addresses.present)
        pauses.append(addresses.failed())
    assert dialled == ["http://a", "http://b"] * 2
    assert pauses == [False, True] * 2


def test_a_session_that_worked_begins_the_round_anew() -> None:
    addresses = Addresses("http://a,http://b")
    addresses.failed()
    addresses.worked()
    assert not addresses.failed()


def test_of_one_dispatcher_each_failure_is_the_last() -> None:
    addresses = Addresses("http://a")
    assert addresses.failed()
    assert addresses.present == "http://a"
