"""A key of the type snowflake for Django: id = SnowflakeField(primary_key=True)."""

from django.db import models


class SnowflakeField(models.BigAutoField):
    """A key that is made by the database, like BigAutoField's."""

    def db_type(self, connection):
        return "snowflake"

    def db_type_suffix(self, connection):
        return "DEFAULT snowflake_next()"

    def from_db_value(self, value, expression, connection):
        return None if value is None else int(value)


@SnowflakeField.register_lookup
class SnowflakeTime(models.Transform):
    """The time of a key, as id__time in a filter.  Such a filter is planned on the key."""

    lookup_name = "time"
    function = "snowflake_timestamp"
    output_field = models.DateTimeField()
