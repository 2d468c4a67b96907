"""Results in the TAP format, as the programs of this directory print them."""

_count = 0


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
