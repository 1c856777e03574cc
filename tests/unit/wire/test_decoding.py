"""What msgspec says of a mistake becomes the sentence that every other error has."""

from enum import Enum
from typing import Annotated, Literal

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.wire.decoding import decode


class Wheel(msgspec.Struct, forbid_unknown_fields=True):
    spokes: int


class Paint(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Cart(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    front: Wheel | None = None
    wheels: tuple[Wheel, ...] = ()
    spare: dict[str, Wheel] = {}
    paint: Paint | None = None
    coats: tuple[Paint, ...] = ()
    load: Annotated[int, msgspec.Meta(ge=0, lt=10)] = 0
    owner: Annotated[str, msgspec.Meta(max_length=3)] = ""
    price: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    bell: Literal["loud", "soft"] | None = None


def test_a_good_value_is_decoded() -> None:
    assert decode({"name": "a", "wheels": [{"spokes": 3}]}, Cart, "$") == Cart("a", wheels=(Wheel(3),))


@pytest.mark.parametrize(
    ("value", "field", "says"),
    [
        ({"nam": "a"}, "$.x.nam", "did you mean name?"),
        (
            {"name": "a", "zzz": 1},
            "$.x.zzz",
            "known are name, front, wheels, spare, paint, coats, load, owner, price, bell",
        ),
        ({"name": "a", "front": {"spoke": 1}}, "$.x.front.spoke", "did you mean spokes?"),
        (
            {"name": "a", "wheels": [{"spokes": 1}, {"spoke": 1}]},
            "$.x.wheels[1].spoke",
            "did you mean spokes?",
        ),
        ({"name": "a", "spare": {"left": {"spoke": 1}}}, "$.x.spare.left.spoke", "did you mean spokes?"),
        ({"front": None}, "$.x.name", "is missing"),
        ({"name": 1}, "$.x.name", "cannot be 1 (write a text)"),
        ({"name": "a", "front": 1}, "$.x.front", "cannot be 1"),
        ({"name": "a", "front": 1}, "$.x.front", "write a mapping of spokes"),
        ([], "$.x", "cannot be a list (write a mapping of name, front"),
        (
            {"name": "a", "load": -1},
            "$.x.load",
            "cannot be -1 (write a whole number of at least 0 and below 10)",
        ),
        (
            {"name": "a", "load": 10},
            "$.x.load",
            "cannot be 10 (write a whole number of at least 0 and below 10)",
        ),
        ({"name": "a", "owner": "anna"}, "$.x.owner", "write a text of at most 3 characters"),
        ({"name": "a", "price": 0.0}, "$.x.price", "write a number above 0"),
        (
            {"name": "a", "paint": "gren"},
            "$.x.paint",
            "cannot be 'gren' (did you mean green? write blue, green or red)",
        ),
        ({"name": "a", "bell": "lud"}, "$.x.bell", "cannot be 'lud' (did you mean loud? write loud or soft)"),
        ({"name": "a", "coats": ["red", "x"]}, "$.x.coats[1]", "write blue, green or red"),
    ],
)
def test_a_mistake_names_field_and_remedy(value: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode(value, Cart, "$.x")
    assert caught.value.field == field
    assert says in caught.value.describe()
