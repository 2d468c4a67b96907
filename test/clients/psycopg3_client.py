"""psycopg 3.  To be run by clients.pl."""

import psycopg

from psycopg_snowflake import Snowflake, register_snowflake
from tap import FAR, OLD, client, done, end, form, is_, raises, start

connection = psycopg.connect("", autocommit=True)


def value(sql, *parameters, binary=False):
    """The only column of the only row."""
    ((result,),) = connection.execute(sql, parameters, binary=binary).fetchall()
    return result


client(f"psycopg 3 {psycopg.__version__}, {psycopg.pq.__impl__} implementation")
connection.execute("""
    CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);
    CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders""")

# without any preparation
text = value("INSERT INTO orders VALUES (%b, 'old') RETURNING id", OLD)
is_(text, str(OLD), "a snowflake is a str")
is_(value("SELECT id FROM orders WHERE id = %s", OLD, binary=True), OLD.to_bytes(8, "big"), "in binary, it is bytes")
for condition, parameter in (
    ("id = %s", text), ("id = %s", OLD), ("id = %b", OLD), ("id = ANY (%b)", [5, OLD]), ("id = ANY (%s)", ["5", text]),
    ("id = %b::snowflake", text), ("@@ id < %s", start), ("@@ id < %b", start)):
    is_(value("SELECT item FROM orders WHERE " + condition, parameter), "old", f"{condition} of {parameter!r}")
raises(psycopg.errors.UndefinedFunction,
       lambda: value("SELECT item FROM orders WHERE id = %b", text), "a binary str is refused without a cast")

# as int, once these have been registered
register_snowflake(connection)
for binary in False, True:
    how = "binary" if binary else "text"
    is_(value("SELECT id FROM orders WHERE id = %s", OLD, binary=binary), OLD, f"an int from {how}")
    is_(value("SELECT array_agg(id) FROM orders WHERE id = %s", OLD, binary=binary), [OLD],
        f"a list of int from {how}")
    is_(value("SELECT NULL::snowflake", binary=binary), None, f"a null from {how} is None")
# for COPY BINARY and for whoever wants parameters typed
is_(value("SELECT pg_typeof(%b)::text", Snowflake(OLD)), "snowflake", "a parameter has the type")
with connection.cursor().copy("COPY orders FROM STDIN (FORMAT binary)") as copy:
    copy.set_types(["snowflake", "text"])
    copy.write_row((Snowflake(FAR), "far"))
with connection.cursor().copy("COPY orders TO STDOUT (FORMAT binary)") as copy:
    copy.set_types(["snowflake", "text"])
    is_(list(copy.rows()), [(OLD, "old"), (FAR, "far")], "COPY BINARY writes and reads rows")

# the form of all sections
cursor = connection.cursor()


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
