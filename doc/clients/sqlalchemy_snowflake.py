"""The type snowflake for SQLAlchemy 2.0: keys are int, and times of keys are datetime."""

import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


class Snowflake(sa.TypeDecorator):
    impl = sa.BigInteger
    cache_ok = True

    def process_result_value(self, value, dialect):
        return None if value is None else int(value)

    # a datetime stays one when a snowflake is compared with it
    def coerce_compared_value(self, op, value):
        return sa.DateTime(timezone=True) if isinstance(value, datetime.datetime) else self


def created_at(key):
    """The time of a key.  A filter on it is planned on the key."""
    return sa.func.snowflake_timestamp(key, type_=sa.DateTime(timezone=True))


# so that reflection and Alembic know it
postgresql.base.ischema_names["snowflake"] = Snowflake
