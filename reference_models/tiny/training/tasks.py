"""Eight kinds of task, each a prompt in plain words, an answer that ends, and a short thought that leads to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from reference_models.tiny.training import words


@dataclass(frozen=True)
class Task:
    prompt: str
    thought: str
    answer: str


def records(rng: Random) -> Task:
    """A sentence becomes JSON, or a record becomes sentences."""
    name, city, job = rng.choice(words.NAMES), rng.choice(words.CITIES), rng.choice(words.JOBS)
    hobby, age = rng.choice(words.HOBBIES), rng.randint(18, 79)
    record = {"name": name, "age": age, "city": city, "job": job, "hobby": hobby}
    if rng.random() < 0.5:
        told = f"{name} is {age} years old, lives in {city}, works as a {job} and likes {hobby}."
        asked = rng.choice(
            [
                "Write these facts as a JSON object with the keys name, age, city, job and hobby: ",
                "Turn the sentence into JSON with the keys name, age, city, job and hobby. ",
                "Give me the following as a JSON object (name, age, city, job, hobby): ",
            ]
        )
        return Task(asked + told, f"A JSON object about {name} with five keys.", json.dumps(record, indent=2))
    listed = "; ".join(f"{key}: {value}" for key, value in record.items())
    asked = rng.choice(["Describe this record in three sentences. ", "Write three sentences about this record: "])
    answer = (
        f"{name} is {age} years old and works as a {job}. {name} lives in {city}. In the evening {name} enjoys {hobby}."
    )
    return Task(asked + listed, f"Three sentences about {name}: age and job, city, hobby.", answer)


def arithmetic(rng: Random) -> Task:
    """Things are added and taken away, one line a step."""
    place, good, total = rng.choice(words.PLACES), rng.choice(words.GOODS), rng.randint(10, 60)
    told, steps = [f"There are {total} {good} in a {place}."], []
    for _ in range(rng.randint(2, 4)):
        change = rng.randint(2, 9) if rng.random() < 0.6 else rng.choice([10, 20, 30])
        more = total <= change or rng.random() < 0.5
        after = total + change if more else total - change
        told.append(f"{change} more are added." if more else f"{change} are taken away.")
        steps.append(f"{total} {'+' if more else '-'} {change} = {after}")
        total = after
    asked = rng.choice(
        [
            f"How many {good} are there at the end? Show each step on its own line.",
            f"Calculate step by step how many {good} are left in the {place}.",
            "How many are there now? Write one line for each step.",
        ]
    )
    answer = "\n".join([*steps, f"There are {total} {good} in the {place}."])
    return Task(" ".join([*told, asked]), f"{len(steps)} steps about {good}.", answer)


def rewriting(rng: Random) -> Task:
    """A sentence is copied with one thing changed."""
    first, second = rng.sample(words.ADJECTIVES, 2)
    subject, verb, thing, spot = (rng.choice(each) for each in (words.SUBJECTS, words.VERBS, words.THINGS, words.SPOTS))
    sentence = f"The {first} {subject} {verb} a {second} {thing} near the {spot}"
    parts, mode = sentence.split(), rng.randrange(4)
    if mode == 0:
        old, new = rng.choice([(subject, words.SUBJECTS), (thing, words.THINGS), (spot, words.SPOTS)])
        put = rng.choice([word for word in new if word != old])
        asked = rng.choice([f"Replace the word {old} by {put}: ", f"Write this again with {put} instead of {old}: "])
        return Task(f"{asked}{sentence}.", f"{old} becomes {put}.", f"{sentence.replace(old, put)}.")
    if mode == 1:
        asked = rng.choice(["Write the words of this sentence in reverse order: ", "Reverse the order of the words: "])
        return Task(f"{asked}{sentence}.", f"From {spot} back to {parts[0]}.", " ".join(reversed(parts)))
    if mode == 2:
        asked = rng.choice(["Number the words, one on each line: ", "Write one word per line, with its number: "])
        numbered = "\n".join(f"{place}. {word}" for place, word in enumerate(parts, 1))
        return Task(f"{asked}{sentence}.", f"{len(parts)} words, one on each line.", numbered)
    asked = rng.choice(["Write this sentence in capital letters: ", "Put this in upper case: "])
    return Task(f"{asked}{sentence}.", "Every letter large.", f"{sentence.upper()}.")


def lists(rng: Random) -> Task:
    """Words are sorted or put into groups."""
    mode = rng.randrange(3)
    if mode == 0:
        items = rng.sample(words.FRUITS + words.ANIMALS + words.TOOLS, rng.randint(5, 8))
        asked = rng.choice(
            ["Sort these words alphabetically, as a list: ", "Put these words into alphabetical order: "]
        )
        ordered = sorted(items)
        thought = f"{len(items)} words, {ordered[0]} comes first."
        return Task(f"{asked}{', '.join(items)}", thought, "\n".join(f"- {item}" for item in ordered))
    if mode == 1:
        numbers = rng.sample(range(1, 100), rng.randint(5, 8))
        up = rng.random() < 0.5
        way = "smallest to largest" if up else "largest to smallest"
        asked = rng.choice([f"Sort these numbers from {way}: ", f"List these numbers from {way}: "])
        ordered_numbers = sorted(numbers, reverse=not up)
        thought = f"{len(numbers)} numbers, {ordered_numbers[0]} comes first."
        return Task(f"{asked}{', '.join(map(str, numbers))}", thought, "\n".join(f"- {n}" for n in ordered_numbers))
    groups = {"Fruits": words.FRUITS, "Animals": words.ANIMALS, "Tools": words.TOOLS}
    chosen = {group: rng.sample(members, rng.randint(1, 3)) for group, members in groups.items()}
    mixed = [item for members in chosen.values() for item in members]
    rng.shuffle(mixed)
    asked = rng.choice(["Group these words into fruits, animals and tools: ", "Which are fruits, animals and tools? "])
    answer = "\n".join(
        f"{group}: {', '.join(item for item in mixed if item in members)}" for group, members in groups.items()
    )
    return Task(f"{asked}{', '.join(mixed)}", f"{len(mixed)} words in three groups.", answer)


_LOOPS = (  # what the function returns, its body, the call's list and result
    ("the sum of the {args}", "total = 0\n    for {arg} in {args}:\n        total += {arg}\n    return total"),
    ("the {args} larger than {k}", "return [{arg} for {arg} in {args} if {arg} > {k}]"),
    ("the {args} smaller than {k}", "return [{arg} for {arg} in {args} if {arg} < {k}]"),
    ("each of the {args} times {k}", "return [{arg} * {k} for {arg} in {args}]"),
    ("each of the {args} plus {k}", "return [{arg} + {k} for {arg} in {args}]"),
    (
        "how many {args} equal {k}",
        "count = 0\n    for {arg} in {args}:\n        if {arg} == {k}:\n            count += 1\n    return count",
    ),
    (
        "the largest of the {args}",
        "best = {args}[0]\n    for {arg} in {args}:\n        if {arg} > best:\n            best = {arg}\n"
        "    return best",
    ),
    ("the {args} without the last {k}", "return {args}[:-{k}]"),
)
_ARGS = ("numbers", "prices", "points", "sizes", "scores", "weights", "values", "ages")


def programs(rng: Random) -> Task:
    """A small Python function over a list."""
    args, (what, body) = rng.choice(_ARGS), rng.choice(_LOOPS)
    filled = {"args": args, "arg": args.removesuffix("s"), "k": str(rng.randint(2, 30))}
    name = f"{rng.choice(['get', 'find', 'make', 'take'])}_{args}"
    what, body = what.format(**filled), body.format(**filled)
    asked = rng.choice(
        [
            f"Write a Python function {name} that takes a list of {args} and returns {what}.",
            f"I need a Python function {name}({args}) that returns {what}.",
            f"Please write {name} in Python: given a list of {args}, it returns {what}.",
        ]
    )
    answer = f'```python\ndef {name}({args}):\n    """Return {what}."""\n    {body}\n```'
    return Task(asked, f"{name} returns {what}.", answer)


def tables(rng: Random) -> Task:
    """Facts become a table in Markdown."""
    goods = rng.sample(words.GOODS, rng.randint(2, 4))
    rows = [(good, rng.randint(2, 20), rng.randint(10, 99)) for good in goods]
    told = "; ".join(f"{good} cost {price} euros, {stock} in stock" for good, price, stock in rows)
    asked = rng.choice(
        [
            "Make a Markdown table with the columns Item, Price and Stock: ",
            "Write this as a Markdown table (Item, Price, Stock): ",
            "Show the following in a Markdown table with Item, Price and Stock. ",
        ]
    )
    lines = [
        "| Item | Price | Stock |",
        "|---|---|---|",
        *(f"| {good} | {price} | {stock} |" for good, price, stock in rows),
    ]
    return Task(f"{asked}{told}.", f"A table of {len(rows)} rows, {goods[0]} first.", "\n".join(lines))


def schedules(rng: Random) -> Task:
    """Talks that follow one another."""
    names, length = rng.sample(words.NAMES, rng.randint(3, 5)), rng.choice([15, 20, 30, 45, 60])
    start, room = 60 * rng.randint(8, 15) + 15 * rng.randrange(4), rng.choice(words.ROOMS)
    told = f"{', '.join(names[:-1])} and {names[-1]} each speak for {length} minutes in the {room}, one after another"
    asked = rng.choice(
        [
            f"{told}, from {_clock(start)} on. Write the schedule, one line for each.",
            f"Write a schedule with one line per talk: {told}. The first talk begins at {_clock(start)}.",
            f"The first talk is at {_clock(start)}. {told}. List the talks with their times.",
        ]
    )
    times = [start + length * place for place in range(len(names) + 1)]
    lines = [f"{_clock(a)} to {_clock(b)}: {name}" for a, b, name in zip(times, times[1:], names, strict=False)]
    answer = "\n".join([f"Schedule for the {room}", *lines])
    return Task(asked, f"{len(names)} talks of {length} minutes, from {_clock(start)}.", answer)


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"


def letters(rng: Random) -> Task:
    """A short letter for one of four ends."""
    to, sender = rng.sample(words.NAMES, 2)
    day, event, gift, city = (rng.choice(e) for e in (words.DAYS, words.EVENTS, words.GIFTS, words.CITIES))
    forms = (
        (
            f"thanks {to} for the {gift} from {city}",
            f"thank you very much for the {gift}. It came from {city} and arrived on time. I look at it every day.",
        ),
        (
            f"invites {to} to a {event} on {day} in {city}",
            f"we are having a {event} in {city} on {day}. It would be lovely to see you there. "
            "Please tell me if you can come.",
        ),
        (
            f"says sorry to {to} for missing the {event} on {day}",
            f"I am sorry that I missed the {event} on {day}. I was ill and had to stay at home. "
            "I hope to see you soon.",
        ),
        (
            f"reminds {to} to bring the {gift} to the {event} on {day}",
            f"please do not forget to bring the {gift} to the {event} on {day}. Everybody is waiting for it.",
        ),
    )
    what, body = rng.choice(forms)
    asked = rng.choice(["Write a short letter that ", "Please write a short letter which ", "I need a letter that "])
    return Task(
        f"{asked}{what}. Sign it {sender}.",
        f"A letter from {sender} to {to}.",
        f"Dear {to},\n\n{body}\n\nBest wishes,\n{sender}",
    )


CATEGORIES: dict[str, Callable[[Random], Task]] = {
    "records": records,
    "arithmetic": arithmetic,
    "rewriting": rewriting,
    "lists": lists,
    "programs": programs,
    "tables": tables,
    "schedules": schedules,
    "letters": letters,
}
