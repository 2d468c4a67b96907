// tokio-postgres, which the crate postgres wraps.  To be run by ../clients.pl.

use std::env;
use std::error::Error;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use tokio_postgres::types::{FromSql, ToSql};
use tokio_postgres::{Client, NoTls, Row};

#[path = "../tokio_snowflake.rs"]
mod tokio_snowflake;
use tokio_snowflake::Snowflake;

const BIG: i64 = (1 << 53) + 1;

struct Tap(u32);

impl Tap {
    fn is<T: PartialEq + Debug>(&mut self, got: T, expected: T, name: &str) {
        let verdict = if got == expected { "ok" } else { "not ok" };

        self.0 += 1;
        println!("{} {} - {}", verdict, self.0, name);
        if got != expected {
            println!("# got: {:?}\n# expected: {:?}", got, expected);
        }
    }
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The only column of the only row.
async fn value<T: for<'a> FromSql<'a>>(
    db: &Client,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<T, tokio_postgres::Error> {
    db.query_one(sql, parameters).await?.try_get(0)
}

/// The form of all sections, with a table that has rows of 2010 and of 2045.
async fn sections(db: &Client, tap: &mut Tap) -> Result<(), Box<dyn Error>> {
    let far = (1i64 << 62) + 1;
    let (start, end) = (SystemTime::now() - Duration::from_secs(3600), SystemTime::now() + Duration::from_secs(3600));
    let items: Vec<String> = (0..1000).map(|i| format!("item {i}")).collect();
    let keys = |rows: Vec<Row>| rows.iter().map(|row| row.get::<_, Snowflake>("id").0).collect::<Vec<i64>>();
    let sorted = |mut ids: Vec<i64>| {
        ids.sort_unstable();
        ids
    };

    db.batch_execute(
        "TRUNCATE orders;
        CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders",
    )
    .await?;
    db.execute("INSERT INTO orders (id) VALUES ($1), ($2)", &[&Snowflake(BIG), &Snowflake(far)]).await?;

    let row = db.query_one("INSERT INTO orders (item) VALUES ($1) RETURNING id", &[&"tea"]).await?;
    let id: Snowflake = row.get("id");
    let back = keys(db.query("SELECT * FROM orders WHERE id = $1", &[&id]).await?);
    let batch = db.query("INSERT INTO orders (item) SELECT unnest($1::text[]) RETURNING id", &[&items]).await?;
    let other: Snowflake = batch[0].get("id");
    let some = db.query("SELECT * FROM orders WHERE id = ANY ($1)", &[&vec![id, other]]).await?;
    let newest = keys(db.query("SELECT * FROM orders ORDER BY id DESC LIMIT 20", &[]).await?);
    let last = Snowflake(newest[19]);
    let next = db.query("SELECT * FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 20", &[&last]).await?;
    let period = "SELECT * FROM orders_view WHERE created_at >= $1 AND created_at < $2";
    let period = db.query(period, &[&start, &end]).await?;

    let mut minted = keys(batch);
    tap.is(back, vec![id.0], "insert, and read back exactly");
    tap.is(sorted(minted.clone()), minted.clone(), "the keys of a batch ascend");
    minted.insert(0, id.0);
    minted.dedup();
    tap.is(minted.len(), 1001, "and are 1,000");
    tap.is(sorted(keys(some)), minted[..2].to_vec(), "a list of keys");
    tap.is(sorted(keys(period)), minted.clone(), "rows of a period, by SystemTimes");
    minted.push(far);
    minted.reverse();
    tap.is(newest, minted[..20].to_vec(), "newest first");
    tap.is(keys(next), minted[20..40].to_vec(), "the next page");
    Ok(())
}

async fn test() -> Result<(), Box<dyn Error>> {
    let setting = |name| env::var(name).unwrap_or_default();
    let options = format!(
        "host={} port={} user={} dbname={}",
        setting("PGHOST"),
        setting("PGPORT"),
        setting("PGUSER"),
        setting("PGDATABASE")
    );
    let (db, connection) = tokio_postgres::connect(&options, NoTls).await?;
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let mut tap = Tap(0);

    tokio::spawn(connection);
    println!("# client: Rust tokio-postgres {}", setting("TOKIO_POSTGRES_VERSION"));
    db.batch_execute(
        "CREATE TABLE orders (
            id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
            ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
            item text
        )",
    )
    .await?;

    // with what the crate knows
    let insert = "INSERT INTO orders (item) VALUES ($1) RETURNING ";
    let refused: Result<i64, _> = value(&db, &format!("{insert} id"), &[&"refused"]).await;
    tap.is(refused.is_err(), true, "a snowflake cannot be read as an i64");
    let id: i64 = value(&db, &format!("{insert} id::bigint"), &[&"default"]).await?;
    tap.is(id > BIG, true, "a bigint can");
    let by_id = "SELECT item FROM orders WHERE id = $1";
    tap.is(value::<String>(&db, by_id, &[&id]).await?, "default".into(), "filter by an i64");
    let refused: Result<String, _> = value(&db, by_id, &[&id.to_string()]).await;
    tap.is(refused.is_err(), true, "a String is refused");
    let by_text = "SELECT item FROM orders WHERE id = $1::text::bigint";
    tap.is(value::<String>(&db, by_text, &[&id.to_string()]).await?, "default".into(),
        "filter by a String, with casts");
    let mut many: Vec<i64> = (1..1000).collect();
    many.push(id);
    let count = "SELECT count(*) FROM orders WHERE ";
    tap.is(value::<i64>(&db, &format!("{count} id = ANY ($1)"), &[&many]).await?, 1,
        "filter by a Vec of i64");
    let places: Vec<String> = (1..=1000).map(|i| format!("${i}")).collect();
    let by_places = format!("{count} id IN ({})", places.join(", "));
    let parameters: Vec<&(dyn ToSql + Sync)> = many.iter().map(|id| id as _).collect();
    tap.is(value::<i64>(&db, &by_places, &parameters).await.is_err(), true,
        "IN of parameters does not take i64");
    tap.is(value::<SystemTime>(&db, "SELECT @@ id FROM orders LIMIT 1", &[]).await? > hour_ago, true,
        "the time of an ID is a SystemTime");
    tap.is(value::<i64>(&db, &format!("{count} @@ id >= $1"), &[&hour_ago]).await?, 2,
        "filter its time by a SystemTime");
    tap.is(value::<i64>(&db, &format!("{count} id >= $1"), &[&hour_ago]).await.is_err(), true,
        "a time beside the key is refused");
    tap.is(value::<i64>(&db, &format!("{count} ref >= snowflake_lower_bound($1)"), &[&hour_ago]).await?, 2,
        "filter the bigint column by a time");
    let explicit = "INSERT INTO orders VALUES ($1, $2)";
    tap.is(db.execute(explicit, &[&BIG, &BIG]).await.is_err(), true, "an i64 for the column itself is refused");
    tap.is(db.execute("INSERT INTO orders VALUES ($1::bigint, $2)", &[&BIG, &BIG]).await?, 1,
        "insert an i64 beyond 2^53, with a cast");
    tap.is(value::<i64>(&db, "SELECT max(id) FROM orders", &[]).await?, id, "max() is an i64");

    // with a type of our own
    tap.is(value::<Snowflake>(&db, "SELECT id FROM orders WHERE id < $1 ORDER BY id LIMIT 1", &[&id]).await?,
        Snowflake(BIG), "own type: read; the next page, by key");
    tap.is(value::<Vec<Snowflake>>(&db, "SELECT array_agg(id) FROM orders WHERE id = $1", &[&BIG]).await?,
        vec![Snowflake(BIG)], "own type: read an array");
    tap.is(value::<String>(&db, by_id, &[&Snowflake(id)]).await?, "default".into(), "own type: filter");
    let own: Vec<Snowflake> = many.iter().map(|id| Snowflake(*id)).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = own.iter().map(|id| id as _).collect();
    tap.is(value::<i64>(&db, &by_places, &parameters).await?, 1, "own type: IN of parameters");
    tap.is(db.execute(explicit, &[&Snowflake(BIG + 1), &Snowflake(BIG + 1)]).await?, 1, "own type: insert");
    tap.is(value::<String>(&db, "SELECT row_to_json(o)::text FROM orders o WHERE id = $1", &[&BIG]).await?,
        format!(r#"{{"id":"{BIG}","ref":{BIG},"item":null}}"#), "JSON has a string for snowflake");

    sections(&db, &mut tap).await?;
    println!("1..{}", tap.0);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(test())
}
