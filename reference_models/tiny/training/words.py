"""The words that tasks are filled with."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words(
    "Anna Ben Clara David Elena Felix Grace Hugo Ines Jonas Kira Leo Maria Nina Oscar Paula Quinn Rosa Simon Tara "
    "Ulla Victor Wanda Yusuf Zoe Amir Bela Chloe Dario Emma"
)
CITIES = _words(
    "Oslo Paris Lima Cairo Delhi Madrid Berlin Tokyo Rome Vienna Prague Dublin Quito Lagos Sydney Boston Athens Riga "
    "Seoul Geneva"
)
JOBS = _words("nurse teacher baker pilot farmer lawyer painter driver doctor gardener chemist editor plumber tailor")
HOBBIES = _words("chess tennis sailing cooking painting hiking reading dancing cycling fishing singing knitting")

FRUITS = _words("apples pears plums cherries grapes lemons melons figs peaches kiwis mangos dates")
ANIMALS = _words("dogs cats horses rabbits goats ducks sheep foxes bears owls mice wolves")
TOOLS = _words("hammers saws drills nails ropes knives ladders brushes pliers screws")
GOODS = FRUITS + TOOLS
PLACES = _words("shelf basket box garage cellar drawer cart truck shop barn")

ADJECTIVES = _words("old small quiet brave green happy lazy clever tired young strange bright")
SUBJECTS = _words("fox king child sailor robot farmer queen dog poet giant bird painter")
VERBS = _words("sees finds paints carries follows builds hides sells watches breaks opens cleans")
THINGS = _words("boat lamp house book bridge clock garden box mirror ladder window piano")
SPOTS = _words("river castle market forest harbour station mountain school mill lake")

ROOMS = _words("hall library office studio kitchen garden")
EVENTS = _words("party dinner concert meeting picnic wedding")
GIFTS = _words("book lamp cake scarf painting basket clock vase")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
