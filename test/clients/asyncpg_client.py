"""asyncpg, which asks the server for the type of each parameter.  To be run by clients.pl."""

import asyncio
import datetime

import asyncpg

from tap import FAR, OLD, client, done, end, form, is_, ok, start

BIG = 2**53 + 1
hour_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)


async def main():
    db = await asyncpg.connect()

    async def refused(sql, *parameters, name):
        """The client must refuse a parameter, for its type."""
        try:
            got = await db.fetchval(sql, *parameters)
        except asyncpg.DataError:
            ok(True, name)
        else:
            is_(got, asyncpg.DataError, name)

    client(f"asyncpg {asyncpg.__version__}")
    await db.execute("""
        CREATE TABLE orders (
            id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
            ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
            item text
        )""")

    # without any preparation
    text, number = await db.fetchrow("INSERT INTO orders (item) VALUES ($1) RETURNING id, ref", "default")
    is_(type(text), str, "a snowflake is a str")
    is_(type(number), int, "a bigint is an int")
    key = int(text)
    by_id = "SELECT item FROM orders WHERE id = $1"
    is_(await db.fetchval(by_id, key), "default", "filter by an int")
    await refused(by_id, text, name="a str is refused")
    is_(await db.fetchval(by_id + "::snowflake", text), "default", "filter by a str, with a cast")
    many = [*range(999), key]
    is_(await db.fetchval("SELECT count(*) FROM orders WHERE id = ANY($1)", many), 1,
        "filter by a list of int")
    places = ", ".join(f"${i + 1}" for i in range(1000))
    await refused(f"SELECT FROM orders WHERE id IN ({places})", *many, name="IN of parameters wants str")
    is_(await db.fetchval(f"SELECT count(*) FROM orders WHERE id IN ({places})", *map(str, many)), 1,
        "IN of parameters with str")
    is_(await db.fetchval("SELECT max(id) FROM orders"), key, "max() is an int")
    is_(await db.fetchval("SELECT snowflake_timestamp($1) > $2", key, hour_ago), True, "decode an int")

    # time
    await refused("SELECT FROM orders WHERE id >= $1", hour_ago, name="a datetime beside the key is refused")
    is_(await db.fetchval("SELECT count(*) FROM orders WHERE @@ id <@ $1::tstzrange", asyncpg.Range(None, hour_ago)), 0,
        "filter by a range")
    is_(await db.fetchval("SELECT count(*) FROM orders WHERE ref >= snowflake_lower_bound($1)", hour_ago), 1,
        "filter the bigint column by a datetime")

    # the time of an ID, and a view's column, are a timestamptz
    is_(type(await db.fetchval("SELECT @@ id FROM orders")), datetime.datetime, "the time of an ID is a datetime")
    is_(await db.fetchval("SELECT count(*) FROM orders WHERE @@ id >= $1 AND @@ id < $2", hour_ago,
                          hour_ago + datetime.timedelta(hours=2)), 1, "filter its time by a datetime")
    is_(await db.fetchval("SELECT count(*) FROM orders WHERE @@ id = ANY($1)", [hour_ago]), 0,
        "filter its time by a list of datetime")
    is_([type(at) for at in await db.fetchval("SELECT array_agg(@@ id) FROM orders")], [datetime.datetime],
        "an array of times is a list of datetime")

    # explicit IDs
    insert = "INSERT INTO orders VALUES ($1, $2) RETURNING id"
    await refused(insert, BIG, BIG, name="an int for the column itself is refused")
    is_(await db.fetchval(insert, str(BIG), BIG), str(BIG), "insert a str beyond 2^53")
    is_(await db.fetchval(insert.replace("$1", "$1::bigint"), BIG + 1, BIG + 1), str(BIG + 1),
        "insert an int, with a cast")
    is_([row["id"] for row in await db.fetch(
        "SELECT id FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 2", key)], [str(BIG + 1), str(BIG)],
        "the next page, by key")
    is_(await db.fetchval("SELECT row_to_json(o) FROM orders o WHERE id = $1", BIG),
        '{"id":"%d","ref":%d,"item":null}' % (BIG, BIG), "JSON has a string for snowflake")

    # the codec of bigint: int in both directions, in binary
    await db.set_builtin_type_codec("snowflake", schema="public", codec_name="int8")
    is_(await db.fetchval("SELECT id FROM orders WHERE id = $1", BIG), BIG, "codec set: an int")
    is_(await db.fetchval("SELECT array_agg(id) FROM orders WHERE id = $1", BIG), [BIG],
        "codec set: a list of int")
    is_(await db.fetchval(insert, BIG + 2, BIG + 2), BIG + 2, "codec set: insert an int")
    is_(await db.fetchval(f"SELECT count(*) FROM orders WHERE id IN ({places})", *many), 1,
        "codec set: IN of parameters")
    await db.copy_records_to_table("orders", records=[(BIG + 3, BIG + 3, "copied")])
    is_(await db.fetchval("SELECT id FROM orders WHERE item = 'copied'"), BIG + 3,
        "codec set: binary COPY")

    # the form of all sections
    await db.execute("""
        TRUNCATE orders;
        CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders""")
    await db.executemany(insert, [(OLD, 1), (FAR, 2)])

    def keys(rows):
        return [row["id"] for row in rows]

    key = await db.fetchval("INSERT INTO orders (item) VALUES ($1) RETURNING id", "tea")
    back = await db.fetchval("SELECT id FROM orders WHERE id = $1", key)
    items = [f"item {number}" for number in range(1000)]
    batch = await db.fetch("INSERT INTO orders (item) SELECT unnest($1::text[]) RETURNING id", items)
    some = await db.fetch("SELECT * FROM orders WHERE id = ANY ($1)", [key, batch[0]["id"]])
    newest = await db.fetch("SELECT * FROM orders ORDER BY id DESC LIMIT 20")
    following = await db.fetch("SELECT * FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 20", newest[-1]["id"])
    period = await db.fetch("SELECT * FROM orders_view WHERE created_at >= $1 AND created_at < $2", start, end)
    form(key, back, keys(batch), keys(some), keys(newest), keys(following), keys(period))

    await db.close()
    done()


asyncio.run(main())
