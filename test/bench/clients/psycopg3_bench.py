"""psycopg 3.  To be run by clients.py."""

import psycopg
from psycopg.types import TypeInfo

from psycopg_snowflake import register_snowflake
from turns import rows_of, serve

connection = psycopg.connect("", autocommit=True)
cursor = connection.cursor()
if TypeInfo.fetch(connection, "snowflake"):
    register_snowflake(connection)


def copy(columns, into, rows):
    with cursor.copy(f"COPY {into} ({columns}) FROM STDIN") as stream:
        for row in rows:
            stream.write_row(row)


def single(table, rows):
    for row in rows:
        cursor.execute(f"INSERT INTO {table} (n, item) VALUES (%s, %s) RETURNING id", row).fetchone()


def batch(table, rows):
    for first in range(0, len(rows), 1000):
        with connection.transaction():
            cursor.executemany(f"INSERT INTO {table} (n, item) VALUES (%s, %s)", rows[first:first + 1000])


def default(table, rows):
    copy("n, item", table, rows)


def staging(table, rows):
    with connection.transaction():
        cursor.execute("CREATE TEMPORARY TABLE staging (n integer, item text) ON COMMIT DROP")
        copy("n, item", "staging", rows)
        cursor.execute(f"INSERT INTO {table} (n, item) SELECT n, item FROM staging")


def ids(table, rows):
    minted = cursor.execute("SELECT snowflake_next_batch(%s)", [len(rows)]).fetchall()
    copy("id, n, item", table, ((*id, *row) for id, row in zip(minted, rows)))


def arrays(table, rows):
    cursor.execute(f"INSERT INTO {table} (n, item) SELECT * FROM unnest(%s::integer[], %s::text[])",
                   [list(column) for column in zip(*rows)])


serve(lambda table: cursor.execute(f"TRUNCATE {table}"), rows_of,
      {"single": single, "batch": batch, "copy": default, "staging": staging, "ids": ids, "arrays": arrays})
