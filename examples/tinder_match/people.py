"""The population, which changes with event time, and how popular and active each person is.

Everything is derived from the day alone, so that a restart finds the same people.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random

from examples.tinder_match.events import DAY

__all__ = ("Population", "name_of")

_SIZE = 3000
"""The size of the population on every day."""
_JOIN_PER_DAY = 16
"""How many people join and leave per day: a person stays for about half a year."""
_EPOCH = 19_767
"""The day, counted from 1970, from which on people come and go: 14 February 2024."""

_FIRST_NAMES = (
    "Ada Aki Ali Amy Ana Ann Asa Ben Bea Bob Cem Cleo Dan Deb Dev Eli Elsa Emil Emma Eva Fay Finn Gus Hana Hugo Ian "
    "Ida Ines Iris Ivan Jack Jana Jay Jin Joe Jon Juan Jude Kai Kim Lars Lea Leo Lili Liv Lou Luca Luz Maja Max Maya "
    "Mei Mia Milo Mina Nia Nils Nina Noah Nora Nuri Ola Omar Otto Pam Paul Pia Raj Rita Rob Rosa Roy Ruth Sam Sara "
    "Sven Tara Theo Tina Tom Uma Uri Vera Vik Wim Yara Yuki Zara Zoe"
)
_LAST_NAMES = (
    "Abe Acosta Alves Amin Arnold Ash Bach Baker Banks Beck Berg Birch Blom Bloom Bond Brook Bruun Cano Castro Chan "
    "Cole Cox Cruz Dahl Dale Diaz Dietz Drew Duarte Dunn Ek Engel Faber Falk Feng Field Ford Fox Frank Frost Fuchs "
    "Gil Gold Gray Green Haas Hall Hart Hayes Hill Holm Hoff Hunt Ito Jain Jansen Kaya Keller Khan King Klein Koch "
    "Kim Krause Lake Lam Lang Lee Lind Long Lund Marsh May Meyer Mori Moss Nash Nagy Noor Novak Okoye Ortiz Park "
    "Patel Penn Perez Pohl Quinn Rao Reed Rios Roth Rossi Ruiz Sato Shah Silva Singh Stone Sun Tan Torres Ueda Vega "
    "Vogel Wang Ward Weiss West Wolf Wong Wood Yang York Young Zhu"
)
_FIRST, _LAST = _FIRST_NAMES.split(), _LAST_NAMES.split()


def name_of(number: int) -> str:
    """A name that no other person has."""
    generation, number = divmod(number, len(_FIRST) * len(_LAST))
    row, column = divmod(number, len(_FIRST))
    last = _LAST[(row + 7 * column) % len(_LAST)]
    return f"{_FIRST[column]} {last}" + (f" {generation + 1}" if generation else "")


class Population:
    """The people of the current day."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._first = -1
        self._people: list[str] = []
        self._popular: list[float] = []
        self._active: list[float] = []

    def move_to(self, at: int) -> None:
        first = max(0, (at // DAY - _EPOCH) * _JOIN_PER_DAY)
        if first != self._first:
            self._first, numbers = first, range(first, first + _SIZE)
            self._people = [name_of(number) for number in numbers]
            self._popular = list(accumulate(_zipf(number, 2_654_435_761, 0.8) for number in numbers))
            self._active = list(accumulate(_zipf(number, 2_246_822_519, 0.4) for number in numbers))

    def pick(self) -> tuple[str, str]:
        """An active person, and another one, chosen by popularity."""
        while True:
            (liker,) = self._random.choices(self._people, cum_weights=self._active)
            (liked,) = self._random.choices(self._people, cum_weights=self._popular)
            if liker != liked:
                return liker, liked


def _zipf(number: int, factor: int, exponent: float) -> float:
    """A weight after Zipf's law, for a rank that is spread evenly over the people and fixed for each."""
    rank = number * factor % (1 << 32) / (1 << 32) * _SIZE
    return float((1 + rank) ** -exponent)
