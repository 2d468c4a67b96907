"""SQLAlchemy, with psycopg 3 below it, and Alembic.  To be run by clients.pl."""

import datetime
import warnings

import alembic
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session, column_property, declarative_base

# as it is before the type is known to reflection
known = dict(postgresql.base.ischema_names)
from sqlalchemy_snowflake import Snowflake, created_at
from tap import FAR, OLD, client, done, end, form, is_, ok, start

Base = declarative_base()


class Order(Base):
    __tablename__ = "orders"
    id = sa.Column(Snowflake, primary_key=True)
    item = sa.Column(sa.Text)
    created_at = column_property(created_at(id))


# create_all() makes a bigserial of such a key
sa.event.listen(Order.__table__, "after_create",
                sa.DDL("ALTER TABLE orders ALTER id DROP DEFAULT, ALTER id TYPE snowflake, ALTER id SET DEFAULT snowflake_next()"))


client(f"SQLAlchemy {sa.__version__}, Alembic {alembic.__version__}")
engine = sa.create_engine("postgresql+psycopg://")
Base.metadata.create_all(engine)

# Many rows.  From 2.0 on, that depends on what the column says of its default.
statements = []
sa.event.listen(engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
with Session(engine) as session:
    several = [Order(item="bulk") for _ in range(5000)]
    session.add_all(several)
    session.flush()
    ok(len(statements) <= 5, "5000 rows take at most 5 statements")
    ok(all(one.id < next.id for one, next in zip(several, several[1:])), "and their IDs ascend")

# the form of all sections
with Session(engine) as session:
    session.execute(sa.delete(Order))
    session.add_all([Order(id=OLD, item="old"), Order(id=FAR, item="far")])
    order = Order(item="tea")
    session.add(order)
    session.commit()
    key = order.id
    session.expunge_all()
    back = session.get(Order, key)
    rows = [{"item": f"item {number}"} for number in range(1000)]
    batch = session.scalars(sa.insert(Order).returning(Order.id, sort_by_parameter_order=True), rows).all()
    some = session.scalars(sa.select(Order.id).where(Order.id.in_([key, batch[0]]))).all()
    newest = session.scalars(sa.select(Order.id).order_by(Order.id.desc()).limit(20)).all()
    following = session.scalars(
        sa.select(Order.id).where(Order.id < newest[-1]).order_by(Order.id.desc()).limit(20)).all()
    period = session.scalars(sa.select(Order.id).where(Order.created_at >= start, Order.created_at < end)).all()
    form(key, back.id, batch, some, newest, following, period)
    is_(type(back.created_at), datetime.datetime, "the time of a key is a datetime")
    plan = session.execute(sa.text("EXPLAIN " + str(sa.select(Order.id).where(Order.created_at >= start).compile(
        engine, compile_kwargs={"literal_binds": True})))).scalars().all()
    ok("snowflake_timestamp" not in "".join(plan), "a filter on it is planned on the key")


def reflect():
    """The type of the key, by reflection."""
    return type(sa.Table("orders", sa.MetaData(), autoload_with=engine).c.id.type)


def differences():
    """What Alembic would write into a migration."""
    with engine.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection), Base.metadata)


is_(reflect(), Snowflake, "reflection knows the type")
with engine.begin() as connection:
    connection.execute(sa.text("CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders"))
(of_view,) = [column["type"] for column in sa.inspect(engine).get_columns("orders_view") if column["name"] == "created_at"]
is_((type(of_view).__name__, of_view.timezone), ("TIMESTAMP", True), "and that of a view's created_at")
is_(differences(), [], "Alembic finds nothing to do")
postgresql.base.ischema_names.clear()
postgresql.base.ischema_names.update(known)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    is_([reflect(), len(caught)], [sa.types.NullType, 1], "without the last line, reflection warns")

done()
