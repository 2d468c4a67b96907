"""SQLAlchemy's ORM, with psycopg 3 below it.  To be run by clients.py."""

import sqlalchemy as sa
from sqlalchemy.orm import Session, declarative_base

from sqlalchemy_snowflake import Snowflake
from turns import rows_of, serve

Base = declarative_base()


def mapped(table, key):
    return type(table, (Base,), {
        "__tablename__": table, "id": key, "n": sa.Column(sa.Integer, nullable=False), "item": sa.Column(sa.Text, nullable=False)})


# an UUID is made by the server, as the other keys are
classes = {
    "bench_snowflake": mapped("bench_snowflake", sa.Column(Snowflake, primary_key=True)),
    "bench_bigserial": mapped("bench_bigserial", sa.Column(sa.BigInteger, primary_key=True)),
    "bench_uuidv7": mapped("bench_uuidv7", sa.Column(sa.Uuid, primary_key=True, server_default=sa.FetchedValue()))}
engine = sa.create_engine("postgresql+psycopg://")


def empty(table):
    with engine.begin() as connection:
        connection.exec_driver_sql(f"TRUNCATE {table}")


def single(table, rows):
    with Session(engine) as session:
        for n, item in rows:
            session.add(classes[table](n=n, item=item))
            session.commit()


def batch(table, rows):
    with Session(engine) as session:
        for first in range(0, len(rows), 1000):
            session.add_all([classes[table](n=n, item=item) for n, item in rows[first:first + 1000]])
            session.commit()


serve(empty, rows_of, {"single": single, "batch": batch})
