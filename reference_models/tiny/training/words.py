"""The words that tasks are filled with."""

from __future__ import annotations

NAMES = (
    "Anna Ben Clara David Elena Felix Grace Hugo Ines Jonas Kira Leo Maria Nina Oscar Paula Quinn Rosa Simon Tara "
    "Ulla Victor Wanda Yusuf Zoe Amir Bela Chloe Dario Emma"
).split()
CITIES = (
    "Oslo Paris Lima Cairo Delhi Madrid Berlin Tokyo Rome Vienna Prague Dublin Quito Lagos Sydney Boston Athens Riga "
    "Seoul Geneva"
).split()
JOBS = "nurse teacher baker pilot farmer lawyer painter driver doctor gardener chemist editor plumber tailor".split()
HOBBIES = "chess tennis sailing cooking painting hiking reading dancing cycling fishing singing knitting".split()

FRUITS = "apples pears plums cherries grapes lemons melons figs peaches kiwis mangos dates".split()
ANIMALS = "dogs cats horses rabbits goats ducks sheep foxes bears owls mice wolves".split()
TOOLS = "hammers saws drills nails ropes knives ladders brushes pliers screws".split()
GOODS = FRUITS + TOOLS
PLACES = "shelf basket box garage cellar drawer cart truck shop barn".split()

ADJECTIVES = "old small quiet brave green happy lazy clever tired young strange bright".split()
SUBJECTS = "fox king child sailor robot farmer queen dog poet giant bird painter".split()
VERBS = "sees finds paints carries follows builds hides sells watches breaks opens cleans".split()
THINGS = "boat lamp house book bridge clock garden box mirror ladder window piano".split()
SPOTS = "river castle market forest harbour station mountain school mill lake".split()

ROOMS = "hall library office studio kitchen garden".split()
EVENTS = "party dinner concert meeting picnic wedding".split()
GIFTS = "book lamp cake scarf painting basket clock vase".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
