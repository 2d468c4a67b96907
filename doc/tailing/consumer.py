#!/usr/bin/env python3
"""A consumer in Python, with psycopg2: it prints each row of a table once, in the order of the IDs.

    python3 consumer.py 'dbname=shop' orders /var/lib/consumer/orders.position

Its position is in a file, replaced when rows were printed; after a crash in between, these rows come again.  It is woken
by notifications, which a trigger on the table sends, and looks by itself every five seconds:

    CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('snowflake_tail', TG_TABLE_NAME); RETURN NULL; END $$;
    CREATE TRIGGER announce AFTER INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION announce();
"""

import os
import select
import sys

import psycopg2
from psycopg2 import sql

MAX_ROWS = 1000
LOOK_AGAIN_S = 5        # a row may become visible without a notification: what held the frontier back may have ended
LOOK_SOON_S = 0.1       # while something holds the frontier back


def read_position(path):
    try:
        with open(path, encoding='ascii') as f:
            return int(f.read())
    except FileNotFoundError:
        return 0


def write_position(path, position):
    with open(path + '.new', 'w', encoding='ascii') as f:
        f.write(str(position))
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + '.new', path)


def tail(conn, table, path, once=False):
    query = sql.SQL('SELECT * FROM snowflake_tail(NULL::{}, %s, %s)').format(sql.Identifier(table))
    position = read_position(path)
    with conn.cursor() as cursor:
        cursor.execute('LISTEN snowflake_tail')
        while True:
            # READ COMMITTED, and in autocommit: each call has a snapshot of its own
            cursor.execute(query, (position, MAX_ROWS))
            column = [description.name for description in cursor.description].index('id')
            rows = cursor.fetchall()
            for row in rows:
                print(*row, sep='\t', flush=True)
            if rows:
                position = int(rows[-1][column])
                write_position(path, position)
                continue
            if once:
                return
            cursor.execute('SELECT count(*) FROM snowflake_frontier_holders()')
            held = cursor.fetchone()[0] > 0
            if not conn.notifies:
                select.select([conn], [], [], LOOK_SOON_S if held else LOOK_AGAIN_S)
                conn.poll()
            conn.notifies.clear()


def main():
    conninfo, table, path = sys.argv[1:4]
    conn = psycopg2.connect(conninfo)
    conn.set_session(isolation_level='READ COMMITTED', autocommit=True)
    try:
        tail(conn, table, path, once='--once' in sys.argv[4:])
    except KeyboardInterrupt:
        pass


if __name__ == '__main__':
    main()
