"""psycopg2: columns of the type snowflake are int.  Call register_snowflake() once for each connection."""

from psycopg2.extensions import new_array_type, new_type, register_type


def register_snowflake(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT oid::bigint, typarray::bigint FROM pg_type WHERE oid = 'snowflake'::regtype")
        oid, array_oid = cursor.fetchone()
    snowflake = new_type((oid,), "SNOWFLAKE", lambda value, cursor: None if value is None else int(value))
    register_type(snowflake, connection)
    register_type(new_array_type((array_oid,), "SNOWFLAKE[]", snowflake), connection)
