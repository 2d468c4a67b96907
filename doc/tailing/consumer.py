#!/usr/bin/env python3
"""A consumer in Python: it prints each row of a table once, in the order of the IDs.

    sudo apt-get install python3-psycopg2
    python3 consumer.py 'dbname=shop' orders orders.position

Its role, whose name is by default the system user's, needs SELECT on the table.  Its position is in a file, whose
directory must exist, and which is replaced when rows were printed; after a crash in between, these rows come again.  It
looks twice a second.  With --listen it looks every five seconds, and is woken by notifications, which a trigger on the
table sends; that costs those who write (see "A consumer" in doc/tailing.md):

    CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('snowflake_tail', TG_TABLE_NAME); RETURN NULL; END $$;
    CREATE TRIGGER announce AFTER INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION announce();

With --once it ends when there is nothing left to print.
"""

import os
import select
import sys

import psycopg2
from psycopg2 import sql

MAX_ROWS = 1000
LOOK_AGAIN_S = 0.5
LOOK_AGAIN_WOKEN_S = 5
LOOK_SOON_S = 0.1       # while something holds the frontier back, whose end nobody announces


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


def tail(conn, table, path, once=False, listen=False):
    query = sql.SQL('SELECT * FROM {} WHERE id > %s AND id <= snowflake_frontier() ORDER BY id LIMIT %s').format(
        sql.Identifier(table))
    position = read_position(path)
    with conn.cursor() as cursor:
        if listen:
            cursor.execute('LISTEN snowflake_tail')
        while True:
            # before the rows: who ends between the two has left nothing behind
            cursor.execute('SELECT count(*) FROM snowflake_frontier_holders()')
            held = cursor.fetchone()[0] > 0
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
            if not conn.notifies:
                select.select([conn], [], [], LOOK_SOON_S if held else LOOK_AGAIN_WOKEN_S if listen else LOOK_AGAIN_S)
                conn.poll()
            conn.notifies.clear()


def main():
    options = [argument for argument in sys.argv[1:] if argument.startswith('--')]
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith('--')]
    if len(arguments) != 3 or set(options) - {'--once', '--listen'}:
        print('usage: consumer.py [--once] [--listen] CONNECTION TABLE POSITION_FILE', file=sys.stderr)
        sys.exit(2)
    conninfo, table, path = arguments
    conn = psycopg2.connect(conninfo)
    conn.autocommit = True
    try:
        tail(conn, table, path, once='--once' in options, listen='--listen' in options)
    except KeyboardInterrupt:
        pass


if __name__ == '__main__':
    main()
