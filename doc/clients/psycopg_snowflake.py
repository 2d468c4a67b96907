"""psycopg 3: columns of the type snowflake are int.  Call register_snowflake() once for each connection."""

from psycopg.types import TypeInfo
from psycopg.types.numeric import Int8BinaryDumper, Int8BinaryLoader, IntLoader


class Snowflake(int):
    """For parameters that are to have the type itself, as in a binary COPY."""


def register_snowflake(connection):
    info = TypeInfo.fetch(connection, "snowflake")
    info.register(connection)
    connection.adapters.register_loader("snowflake", IntLoader)
    connection.adapters.register_loader("snowflake", Int8BinaryLoader)
    connection.adapters.register_dumper(Snowflake, type("SnowflakeDumper", (Int8BinaryDumper,), {"oid": info.oid}))
