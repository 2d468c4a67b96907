"""psycopg2.  To be run by clients.pl."""

import datetime
import io

import psycopg2

from psycopg2_snowflake import register_snowflake
from tap import FAR, OLD, client, done, end, form, is_, ok, raises, start

BIG = 2**53 + 1
hour_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)

connection = psycopg2.connect("")
connection.autocommit = True
cursor = connection.cursor()


def value(sql, *parameters):
    """The only column of the only row."""
    cursor.execute(sql, parameters)
    ((result,),) = cursor.fetchall()
    return result


client(f"psycopg2 {psycopg2.__version__.split()[0]}")
cursor.execute("""
    CREATE TABLE orders (
        id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
        ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
        item text
    )""")

# without any preparation
cursor.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id, ref", ["default"])
text, number = cursor.fetchone()
is_(type(text), str, "a snowflake is a str")
is_(type(number), int, "a bigint is an int")
is_(value("SELECT item FROM orders WHERE id = %s", text), "default", "filter by a str")
is_(value("SELECT item FROM orders WHERE id = %s", int(text)), "default", "filter by an int")
is_(value("SELECT item FROM orders WHERE ref = %s", number), "default", "filter the bigint column")
is_(value("SELECT item FROM orders WHERE id = ANY(%s)", [5, int(text)]), "default",
    "filter by a list of int")
is_(value("SELECT item FROM orders WHERE id IN %s", ("5", text)), "default",
    "filter by a tuple of str")
is_(value("SELECT item FROM orders WHERE id = ANY(%s::snowflake[])", ["5", text]), "default",
    "filter by a list of str, with a cast")
raises(psycopg2.errors.UndefinedFunction,
       lambda: value("SELECT item FROM orders WHERE id = ANY(%s)", ["5", text]),
       "a list of str without a cast is refused")
many = [*range(999), int(text)]
is_(value("SELECT item FROM orders WHERE id = ANY(%s)", many), "default", "filter by a list of 1000")
is_(value("SELECT item FROM orders WHERE id IN %s", tuple(many)), "default", "filter by a tuple of 1000")
is_(value("SELECT id FROM orders WHERE id < %s ORDER BY id DESC LIMIT 1", int(text) + 1), text,
    "the next page, by key")
is_(value("SELECT max(id) FROM orders"), int(text), "max() is an int")
is_(type(value("SELECT @@ id FROM orders")), datetime.datetime, "the time of an ID is a datetime")
is_(value("SELECT count(*) FROM orders WHERE @@ id >= %s", hour_ago), 1, "filter its time by a datetime")
is_(value("SELECT count(*) FROM orders WHERE @@ id < %s", hour_ago), 0, "filter its time by a datetime, the rest")
is_(value("SELECT count(*) FROM orders WHERE @@ id = ANY(%s)", [hour_ago]), 0, "filter its time by a list")
is_(type(value("SELECT array_agg(@@ id) FROM orders")), list, "an array of times is a list")
is_(value("SELECT count(*) FROM orders WHERE ref >= snowflake_lower_bound(%s)", hour_ago), 1,
    "filter the bigint column by a datetime")
is_(value("INSERT INTO orders VALUES (%s, %s) RETURNING id", BIG, BIG), str(BIG),
    "insert an int beyond 2^53")
is_(value("INSERT INTO orders VALUES (%s, %s) RETURNING id", str(BIG + 1), BIG + 1), str(BIG + 1),
    "insert a str beyond 2^53")
is_(value("SELECT row_to_json(o) FROM orders o WHERE id = %s", BIG),
    {"id": str(BIG), "ref": BIG, "item": None}, "JSON has a string for snowflake")

# as int, once these have been registered
is_(value("SELECT array_agg(id) FROM orders WHERE id = %s", BIG), "{%d}" % BIG,
    "an array of snowflakes is a str")
register_snowflake(connection)
is_(value("SELECT id FROM orders WHERE id = %s", BIG), BIG, "registered: an int")
is_(value("SELECT array_agg(id) FROM orders WHERE id = %s", BIG), [BIG], "registered: a list of int")
is_(value("SELECT NULL::snowflake"), None, "registered: a null is None")

# the binary protocol: COPY only
copy = io.BytesIO()
cursor.copy_expert("COPY (SELECT id FROM orders WHERE ref = %d) TO STDOUT (FORMAT binary)" % BIG, copy)
ok(BIG.to_bytes(8, "big") in copy.getvalue(), "COPY BINARY writes 8 bytes, as for a bigint")
cursor.execute("CREATE TABLE copies (id snowflake)")
cursor.copy_expert("COPY copies FROM STDIN (FORMAT binary)", io.BytesIO(copy.getvalue()))
is_(value("SELECT id FROM copies"), BIG, "COPY BINARY reads them")

# the form of all sections
cursor.execute("""
    TRUNCATE orders;
    CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders""")
cursor.execute("INSERT INTO orders VALUES (%s, 1, 'old'), (%s, 2, 'far')", (OLD, FAR))


def keys():
    return [row[0] for row in cursor]


cursor.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id", ["tea"])
(key,) = cursor.fetchone()
back = value("SELECT id FROM orders WHERE id = %s", key)
items = [f"item {number}" for number in range(1000)]
cursor.execute("INSERT INTO orders (item) SELECT unnest(%s) RETURNING id", [items])
batch = keys()
cursor.execute("SELECT * FROM orders WHERE id = ANY (%s)", [[key, batch[0]]])
some = keys()
cursor.execute("SELECT * FROM orders ORDER BY id DESC LIMIT 20")
newest = keys()
cursor.execute("SELECT * FROM orders WHERE id < %s ORDER BY id DESC LIMIT 20", [newest[-1]])
following = keys()
cursor.execute("SELECT * FROM orders_view WHERE created_at >= %s AND created_at < %s", [start, end])
form(key, back, batch, some, newest, following, keys())

done()
