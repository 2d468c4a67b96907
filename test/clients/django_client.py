"""Django, with psycopg2 below it.  To be run by run.sh."""

import datetime
import os

import django
from django.conf import settings
from django.core import serializers
from django.db import connection, models
from django.db.models import Func, Value

from tap import client, done, is_, ok

BIG = 2**53 + 1
HOUR_AGO = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "NAME": os.environ["PGDATABASE"],
        }
    },
    USE_TZ=True,
)
django.setup()


class SnowflakeField(models.BigAutoField):
    """A key that the database makes, like BigAutoField's."""

    def db_type(self, connection):
        return "snowflake"

    def db_type_suffix(self, connection):
        return "DEFAULT snowflake_next()"

    def from_db_value(self, value, expression, connection):
        return None if value is None else int(value)


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    item = models.TextField()

    class Meta:
        app_label = "shop"


class Line(models.Model):
    id = SnowflakeField(primary_key=True)
    order = models.ForeignKey(Order, models.CASCADE)

    class Meta:
        app_label = "shop"


def lower_bound(time):
    return Func(Value(time), function="snowflake_lower_bound", output_field=SnowflakeField())


client(f"Django {django.__version__}")
with connection.schema_editor() as editor:
    editor.create_model(Order)
    editor.create_model(Line)
with connection.cursor() as cursor:
    cursor.execute("""
        SELECT format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE (attrelid, attname) IN (('shop_order'::regclass, 'id'), ('shop_line'::regclass, 'order_id'))
        ORDER BY 1""")
    is_(cursor.fetchall(), [("bigint",), ("snowflake",)], "a key is a snowflake, a reference a bigint")

order = Order.objects.create(item="default")
is_(type(order.id), int, "create() returns an int")
several = Order.objects.bulk_create([Order(item="bulk"), Order(item="bulk")])
ok(order.id < several[0].id < several[1].id, "bulk_create() mints an ID for each row")
is_(Order.objects.get(pk=order.id).item, "default", "get()")
is_(Order.objects.get(pk=str(order.id)).item, "default", "get() by a str")
is_(Order.objects.filter(id__in=[5, order.id]).count(), 1, "filter by a list of int")
is_(Order.objects.filter(id__gte=lower_bound(HOUR_AGO)).count(), 3, "filter by a datetime")
is_(Order.objects.filter(id__lt=lower_bound(HOUR_AGO)).count(), 0, "filter by a datetime, the rest")
Order.objects.create(id=BIG, item="explicit")
is_(Order.objects.values_list("id", flat=True).get(item="explicit"), BIG, "insert an int beyond 2^53")

line = Line.objects.create(order=order)
is_(Line.objects.get(order__item="default").order_id, order.id, "a foreign key, with a join")
is_(order.line_set.get().id, line.id, "the way back")
order.item = "changed"
order.save()
is_(Order.objects.get(pk=order.id).item, "changed", "save()")

done()
