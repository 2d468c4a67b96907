// Go: database/sql with lib/pq and with pgx, and pgx by itself.  To be run by clients.pl.

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

const big = 1<<53 + 1

var (
	count   int
	hourAgo = time.Now().Add(-time.Hour)
)

func is(got, expected interface{}, name string) {
	count++
	if reflect.DeepEqual(got, expected) {
		fmt.Printf("ok %d - %s\n", count, name)
	} else {
		fmt.Printf("not ok %d - %s\n# got: %#v\n# expected: %#v\n", count, name, got, expected)
	}
}

// fails wants an error of the server, with this SQLSTATE, or of the driver, without one.
func fails(err error, state, name string) {
	var server interface{ SQLState() string }
	var old *pq.Error
	got := "no error"

	if errors.As(err, &server) {
		got = server.SQLState()
	} else if errors.As(err, &old) {
		got = string(old.Code)
	} else if err != nil {
		got = ""
	}
	is(got, state, name)
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// many is 1000 IDs, of which the last may be in the table, and their places in IN.
func many(id int64) (ids []int64, arguments []interface{}, places string) {
	for i := int64(1); i < 1000; i++ {
		ids = append(ids, i)
	}
	ids = append(ids, id)
	for i, id := range ids {
		arguments = append(arguments, id)
		places += ",$" + strconv.Itoa(i+1)
	}
	return ids, arguments, places[1:]
}

// What programs do with database/sql, which is the same with either driver, but for arrays.
func database(driver string, array func([]int64) interface{}) {
	db, err := sql.Open(driver, "sslmode=disable")
	must(err)
	defer db.Close()
	value := func(query string, arguments ...interface{}) (n int64) {
		must(db.QueryRow(query, arguments...).Scan(&n))
		return
	}
	name := func(text string) string { return driver + ": " + text }
	refused := func(query string, argument interface{}) error {
		var n int64
		return db.QueryRow(query, argument).Scan(&n)
	}
	const counts = "SELECT count(*) FROM orders WHERE "
	var text, json string
	var null sql.NullInt64

	_, err = db.Exec(`
		DROP TABLE IF EXISTS orders CASCADE;
		CREATE TABLE orders (
			id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
			ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
			item text
		)`)
	must(err)
	id := value("INSERT INTO orders (item) VALUES ($1) RETURNING id", "default")
	ref := value("SELECT ref FROM orders")
	is(ref > id && id > big, true, name("both columns get an ID by default, read as int64"))
	must(db.QueryRow("SELECT id, NULL::snowflake FROM orders").Scan(&text, &null))
	is([]interface{}{text, null.Valid}, []interface{}{strconv.FormatInt(id, 10), false},
		name("read as string, a null"))
	is(value(counts+"id = $1", id), int64(1), name("filter by an int64"))
	is(value(counts+"id = $1", text), int64(1), name("filter by a string"))
	ids, arguments, places := many(id)
	is(value(counts+"id = ANY ($1)", array(ids)), int64(1), name("filter by an array of int64"))
	is(value(counts+"id IN ("+places+")", arguments...), int64(1), name("filter by IN"))
	is(value(counts+"@@ id < $1", hourAgo), int64(0), name("filter by a time, the rest"))
	var at time.Time
	must(db.QueryRow("SELECT @@ id FROM orders").Scan(&at))
	is(at.After(hourAgo), true, name("the time of an ID is a time.Time"))
	is(value(counts+"@@ id >= $1", hourAgo), int64(1), name("filter its time by a time.Time"))
	is(value(counts+"ref >= snowflake_lower_bound($1)", hourAgo), int64(1),
		name("filter the bigint column by a time"))
	fails(refused(counts+"id >= $1", hourAgo), "22P02", name("a time beside the key is refused"))
	is(value("INSERT INTO orders VALUES ($1, $2) RETURNING id", int64(big), int64(big)), int64(big),
		name("insert an int64 beyond 2^53"))
	is(value("INSERT INTO orders VALUES ($1, $2) RETURNING id", strconv.Itoa(big+1), int64(big+1)),
		int64(big+1), name("insert a string"))
	is(value("SELECT id FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 1", id), int64(big+1),
		name("the next page, by key"))
	is(value("SELECT max(id) FROM orders"), id, name("max()"))
	is(value("INSERT INTO orders (item) VALUES ($1) RETURNING id", "tea") > id, true, name("the next ID is greater"))
	must(db.QueryRow("SELECT row_to_json(o) FROM orders o WHERE id = $1", int64(big)).Scan(&json))
	is(json, fmt.Sprintf(`{"id":"%d","ref":%d,"item":null}`, big, big),
		name("JSON has a string for snowflake"))
}

func ascend(ids []int64) bool {
	return sort.SliceIsSorted(ids, func(i, j int) bool { return ids[i] < ids[j] })
}

func sorted(ids []int64) []int64 {
	ids = append([]int64{}, ids...)
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	return ids
}

// The form of all sections, with a table that has rows of 2010 and of 2045.
func sections(driver string, array func(interface{}) interface{}) {
	const far = 1<<62 + 1
	var id, back int64
	var items []string
	start, end := hourAgo, hourAgo.Add(2*time.Hour)
	name := func(text string) string { return driver + ": " + text }
	keys := func(rows *sql.Rows, err error) (ids []int64) {
		var id int64

		must(err)
		for rows.Next() {
			must(rows.Scan(&id))
			ids = append(ids, id)
		}
		must(rows.Err())
		return
	}

	db, err := sql.Open(driver, "sslmode=disable")
	must(err)
	defer db.Close()
	for i := 0; i < 1000; i++ {
		items = append(items, "item "+strconv.Itoa(i))
	}
	_, err = db.Exec("DROP TABLE IF EXISTS orders CASCADE;" +
		"CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);" +
		"CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders")
	must(err)
	_, err = db.Exec("INSERT INTO orders VALUES ($1), ($2)", int64(big), int64(far))
	must(err)

	must(db.QueryRow("INSERT INTO orders (item) VALUES ($1) RETURNING id", "tea").Scan(&id))
	must(db.QueryRow("SELECT id FROM orders WHERE id = $1", id).Scan(&back))
	batch := keys(db.Query("INSERT INTO orders (item) SELECT unnest($1::text[]) RETURNING id", array(items)))
	some := keys(db.Query("SELECT id FROM orders WHERE id = ANY ($1)", array([]int64{id, batch[0]})))
	newest := keys(db.Query("SELECT id FROM orders ORDER BY id DESC LIMIT 20"))
	next := keys(db.Query("SELECT id FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 20", newest[19]))
	period := keys(db.Query("SELECT id FROM orders_view WHERE created_at >= $1 AND created_at < $2", start, end))
	minted := append([]int64{id}, batch...)
	is(back, id, name("insert, and read back exactly"))
	is([]interface{}{len(minted), ascend(minted)}, []interface{}{1001, true}, name("a batch of 1,000, whose keys ascend"))
	is(sorted(some), minted[:2], name("a list of keys"))
	is(sorted(newest), append(minted[982:], far), name("newest first"))
	is(sorted(next), minted[962:982], name("the next page"))
	is([]bool{ascend(newest), newest[0] == far, ascend(next), next[0] > next[1]}, []bool{false, true, false, true},
		name("both descend"))
	is(sorted(period), minted, name("rows of a period, by Times"))
}

// What is different with pgx by itself.
func native() {
	var id int64
	var text string
	var ids []int64
	ctx := context.Background()

	conn, err := pgx.Connect(ctx, "")
	must(err)
	defer conn.Close(ctx)
	read := func(target interface{}, expression string) error {
		return conn.QueryRow(ctx, "SELECT "+expression+" FROM orders WHERE id = $1", int64(big)).Scan(target)
	}

	must(read(&text, "id"))
	must(read(&id, "id"))
	is([]interface{}{text, id}, []interface{}{strconv.Itoa(big), int64(big)}, "a snowflake is a string, or an int64")
	many, _, _ := many(big)
	must(conn.QueryRow(ctx, "SELECT count(*) FROM orders WHERE id = ANY ($1)", many).Scan(&id))
	is(id, int64(1), "filter by an array of int64")
	must(read(&ids, "array_agg(id)"))
	is(ids, []int64{big}, "an array of snowflakes is one of int64")
	must(conn.QueryRow(ctx, "SELECT count(*) FROM orders WHERE @@ id >= $1", hourAgo).Scan(&id))
	is(id, int64(2), "filter its time by a time.Time")
	rows := [][]interface{}{{int64(5), int64(5)}}
	copyRows := func() {
		_, err := conn.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id", "ref"}, pgx.CopyFromRows(rows))
		must(err)
		must(conn.QueryRow(ctx, "DELETE FROM orders WHERE ref = 5 RETURNING id").Scan(&id))
	}
	copyRows()
	is(id, int64(5), "CopyFrom() of int64")

	// once the type has been registered
	types, err := conn.LoadTypes(ctx, []string{"snowflake"})
	must(err)
	conn.TypeMap().RegisterTypes(types)
	must(read(&id, "id"))
	is(id, int64(big), "type registered: an int64")
	must(read(&ids, "array_agg(id)"))
	is(ids, []int64{big}, "type registered: an array of int64")
	copyRows()
	is(id, int64(5), "type registered: CopyFrom()")
}

func main() {
	fmt.Printf("# client: Go lib/pq %s\n# client: Go pgx %s\n", os.Getenv("PQ_VERSION"), os.Getenv("PGX_VERSION"))
	sections("postgres", func(list interface{}) interface{} { return pq.Array(list) })
	sections("pgx", func(list interface{}) interface{} { return list })
	database("postgres", func(ids []int64) interface{} { return pq.Array(ids) })
	database("pgx", func(ids []int64) interface{} { return ids })
	native()
	fmt.Printf("1..%d\n", count)
}
