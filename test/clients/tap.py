"""Results in the TAP format, as the programs of this directory print them."""

import datetime

_count = 0

# What each section of doc/clients/ does, in the words of its client, with a table of orders: OLD
# and FAR are in it, of 2010 and of 2045, then a row of now, then a batch of 1,000.
OLD = 2**53 + 1
FAR = 2**62 + 1
start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
end = start + datetime.timedelta(hours=2)


def form(key, back, batch, some, newest, following, period):
    """Whether it has: all of these are keys, back is the first one, read again."""
    minted = [key, *batch]
    is_([type(one) for one in minted], [int] * 1001, "a key is an int")
    is_(back, key, "insert, and read back exactly")
    is_(sorted(some), minted[:2], "a list of keys")
    is_(newest, [FAR, *minted[:-20:-1]], "newest first")
    is_(following, minted[-20:-40:-1], "the next page")
    is_(sorted(period), minted, "rows of a period, by datetimes")
    ok(OLD < key and sorted(batch) == batch and len(set(minted)) == 1001, "a batch of 1,000, whose keys ascend")


def client(text):
    """Say which client in which version is tested."""
    print(f"# client: {text}")


def ok(condition, name):
    global _count
    _count += 1
    print(f"{'ok' if condition else 'not ok'} {_count} - {name}", flush=True)


def is_(got, expected, name):
    """Equal, and of the same type: to Python, True is 1 and 1.0 is 1."""
    same = type(got) is type(expected) and got == expected
    ok(same, name)
    if not same:
        print(f"# got: {got!r}\n# expected: {expected!r}")


def raises(error, function, name):
    """The function must fail with this error."""
    try:
        got = function()
    except error:
        ok(True, name)
    else:
        ok(False, name)
        print(f"# got: {got!r}")


def done():
    print(f"1..{_count}")
