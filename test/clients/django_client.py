"""Django, with psycopg 3 below it.  To be run by clients.pl."""

import datetime
import os

import django
from django.conf import settings
from django.db import connection, models

from django_snowflake import SnowflakeField, SnowflakeTime
from tap import FAR, OLD, client, done, end, form, is_, ok, raises, start

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


class BigintSnowflakeField(SnowflakeField):
    """The field of doc/clients/, of the type bigint, for which from_db_value() has nothing to do."""

    def db_type(self, connection):
        return "bigint"


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    item = models.TextField()

    class Meta:
        app_label = "shop"


class Line(models.Model):
    id = BigintSnowflakeField(primary_key=True)
    order = models.ForeignKey(Order, models.CASCADE)

    class Meta:
        app_label = "shop"


client(f"Django {django.__version__}")
with connection.schema_editor() as editor:
    editor.create_model(Order)
    editor.create_model(Line)
with connection.cursor() as cursor:
    cursor.execute("""
        SELECT attrelid::regclass || '.' || attname, format_type(atttypid, atttypmod)
        FROM pg_attribute
        WHERE attrelid IN ('shop_order'::regclass, 'shop_line'::regclass) AND attname ~ 'id$' AND attnum > 0
        ORDER BY 1""")
    is_(cursor.fetchall(),
        [("shop_line.id", "bigint"), ("shop_line.order_id", "bigint"), ("shop_order.id", "snowflake")],
        "create_model() makes the columns")

# the form of all sections
Order.objects.bulk_create([Order(id=OLD, item="old"), Order(id=FAR, item="far")])
order = Order.objects.create(item="tea")
back = Order.objects.get(pk=order.id)
batch = Order.objects.bulk_create([Order(item=f"item {number}") for number in range(1000)])
some = Order.objects.filter(id__in=[order.id, batch[0].id])
newest = Order.objects.order_by("-id")[:20]
following = Order.objects.filter(id__lt=newest[19].id).order_by("-id")[:20]
period = Order.objects.filter(id__time__range=(start, end))


def keys(rows):
    return [row.id for row in rows]


form(order.id, back.id, keys(batch), keys(some), keys(newest), keys(following), keys(period))
line = Line.objects.create(order=order)
is_(type(line.id), int, "a bigint key is an int as soon as it has been minted")
is_(Line.objects.get(order__item="tea"), line, "a foreign key, with a join")
is_(type(Order.objects.annotate(created_at=SnowflakeTime("id")).latest("created_at").created_at),
    datetime.datetime, "the time of a key is a datetime")
plan = Order.objects.filter(id__time__gte=start).explain()
ok("snowflake_timestamp" not in plan, "a filter on it is planned on the key")
raises((TypeError, ValueError), lambda: Order.objects.filter(id__gte=start).count(), "a time beside the key is refused, by Django")

# what makemigrations writes, and what it says of a model that has not changed
deconstructed = Order._meta.pk.deconstruct()
is_(deconstructed[1:], ("django_snowflake.SnowflakeField", [], {"primary_key": True, "serialize": False}),
    "a migration names the field")
with connection.cursor() as cursor:
    described = connection.introspection.get_table_description(cursor, "shop_order")[0]
    cursor.execute("CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM shop_order")
    of_view = connection.introspection.get_table_description(cursor, "orders_view")[2]
raises(KeyError, lambda: connection.introspection.get_field_type(described.type_code, described),
       "inspectdb does not know the type")
is_(connection.introspection.get_field_type(of_view.type_code, of_view), "DateTimeField",
    "but that of a view's created_at")

done()
