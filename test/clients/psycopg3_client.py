"""psycopg 3.  To be run by clients.pl."""

import datetime

import psycopg
from psycopg.types import TypeInfo

from psycopg_snowflake import Snowflake, register_snowflake
from tap import FAR, OLD, client, done, end, form, is_, raises, start

BIG = 2**53 + 1
hour_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)

connection = psycopg.connect("", autocommit=True)


def value(sql, *parameters, binary=False):
    """The only column of the only row."""
    ((result,),) = connection.execute(sql, parameters, binary=binary).fetchall()
    return result


client(f"psycopg 3 {psycopg.__version__}, {psycopg.pq.__impl__} implementation")
connection.execute("""
    CREATE TABLE orders (
        id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
        ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
        item text
    )""")

# without any preparation
text, number = connection.execute(
    "INSERT INTO orders (item) VALUES (%s) RETURNING id, ref", ["default"]).fetchone()
is_(type(text), str, "a snowflake is a str")
is_(type(number), int, "a bigint is an int")
is_(value("SELECT item FROM orders WHERE id = %s", text), "default", "filter by a str")
is_(value("SELECT item FROM orders WHERE id = %s", int(text)), "default", "filter by an int")
is_(value("SELECT item FROM orders WHERE id = %b", int(text)), "default", "filter by a binary int")
is_(value("SELECT item FROM orders WHERE ref = %s", number), "default", "filter the bigint column")
is_(value("SELECT item FROM orders WHERE id = ANY(%b)", [5, int(text)]), "default",
    "filter by a binary list of int")
is_(value("SELECT item FROM orders WHERE id = ANY(%s)", ["5", text]), "default",
    "filter by a list of str")
raises(psycopg.errors.UndefinedFunction,
       lambda: value("SELECT item FROM orders WHERE id = %b", text), "a binary str is refused")
is_(value("SELECT item FROM orders WHERE id = %b::snowflake", text), "default",
    "a binary str with a cast")
is_(type(value("SELECT @@ id FROM orders")), datetime.datetime, "the time of an ID is a datetime")
is_(value("SELECT count(*) FROM orders WHERE @@ id >= %s", hour_ago), 1, "filter its time by a datetime")
is_(value("SELECT count(*) FROM orders WHERE @@ id >= %b", hour_ago), 1, "filter its time by a binary datetime")
is_(value("INSERT INTO orders VALUES (%b, %b) RETURNING id", BIG, BIG), str(BIG), "insert a binary int beyond 2^53")
is_(value("SELECT row_to_json(o) FROM orders o WHERE id = %s", BIG),
    {"id": str(BIG), "ref": BIG, "item": None}, "JSON has a string for snowflake")
is_(value("SELECT id FROM orders WHERE id = %s", BIG, binary=True), BIG.to_bytes(8, "big"),
    "in binary, a snowflake is bytes")

# as int, once these have been registered
TypeInfo.fetch(connection, "snowflake").register(connection)
is_(value("SELECT array_agg(id) FROM orders WHERE id = %s", BIG), [str(BIG)],
    "type registered: an array is a list of str")
register_snowflake(connection)
for binary in False, True:
    how = "binary" if binary else "text"
    is_(value("SELECT id FROM orders WHERE id = %s", BIG, binary=binary), BIG,
        f"loaders registered: an int from {how}")
    is_(value("SELECT array_agg(id) FROM orders WHERE id = %s", BIG, binary=binary), [BIG],
        f"loaders registered: a list of int from {how}")
    is_(value("SELECT NULL::snowflake", binary=binary), None,
        f"loaders registered: a null from {how} is None")
# for COPY BINARY and for whoever wants parameters typed
is_(value("SELECT pg_typeof(%b)::text", Snowflake(BIG)), "snowflake", "dumper registered: a parameter has the type")
connection.execute("CREATE TABLE copies (id snowflake PRIMARY KEY, item text)")
with connection.cursor().copy("COPY copies FROM STDIN (FORMAT binary)") as copy:
    copy.set_types(["snowflake", "text"])
    copy.write_row((Snowflake(BIG), "copied"))
with connection.cursor().copy("COPY copies TO STDOUT (FORMAT binary)") as copy:
    copy.set_types(["snowflake", "text"])
    is_(list(copy.rows()), [(BIG, "copied")], "COPY BINARY writes and reads rows")

# the form of all sections
connection.execute("""
    TRUNCATE orders;
    CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders""")
cursor = connection.cursor()
cursor.execute("INSERT INTO orders VALUES (%s, 1, 'old'), (%s, 2, 'far')", (OLD, FAR))


def keys():
    return [row[0] for row in cursor]


(key,) = cursor.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id", ["tea"]).fetchone()
(back,) = cursor.execute("SELECT id FROM orders WHERE id = %s", [key]).fetchone()
items = [f"item {number}" for number in range(1000)]
cursor.execute("INSERT INTO orders (item) SELECT unnest(%s::text[]) RETURNING id", [items])
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
