// Go: database/sql with pgx, and pgx by itself.  To be run by clients.pl.

package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
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

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// The form of all sections, with a table that has rows of 2010 and of 2045.
func sections() {
	const far = 1<<62 + 1
	var id, back int64
	var items []string
	start, end := hourAgo, hourAgo.Add(2*time.Hour)
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

	db, err := sql.Open("pgx", "sslmode=disable")
	must(err)
	defer db.Close()
	for i := 0; i < 1000; i++ {
		items = append(items, "item "+strconv.Itoa(i))
	}
	_, err = db.Exec("CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);" +
		"CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders")
	must(err)
	_, err = db.Exec("INSERT INTO orders VALUES ($1), ($2)", int64(big), int64(far))
	must(err)

	must(db.QueryRow("INSERT INTO orders (item) VALUES ($1) RETURNING id", "tea").Scan(&id))
	must(db.QueryRow("SELECT id FROM orders WHERE id = $1", id).Scan(&back))
	batch := keys(db.Query("INSERT INTO orders (item) SELECT unnest($1::text[]) RETURNING id", items))
	some := keys(db.Query("SELECT id FROM orders WHERE id = ANY ($1)", []int64{id, batch[0]}))
	newest := keys(db.Query("SELECT id FROM orders ORDER BY id DESC LIMIT 20"))
	next := keys(db.Query("SELECT id FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 20", newest[19]))
	period := keys(db.Query("SELECT id FROM orders_view WHERE created_at >= $1 AND created_at < $2", start, end))
	minted := append([]int64{id}, batch...)
	is(back, id, "insert, and read back exactly")
	is([]interface{}{len(minted), slices.IsSorted(minted)}, []interface{}{1001, true}, "a batch of 1,000, whose keys ascend")
	slices.Sort(some)
	is(some, minted[:2], "a list of keys")
	slices.Reverse(newest)
	is(newest, append(minted[982:], far), "newest first")
	slices.Reverse(next)
	is(next, minted[962:982], "the next page")
	slices.Sort(period)
	is(period, minted, "rows of a period, by Times")

	// what else a key may be, and what is none
	var text string
	var null sql.NullInt64
	var at time.Time
	must(db.QueryRow("SELECT id, NULL::snowflake, @@ id FROM orders WHERE id IN ($1, $2)", strconv.FormatInt(id, 10), int64(5)).
		Scan(&text, &null, &at))
	is([]interface{}{text, null.Valid, at.After(hourAgo)}, []interface{}{strconv.FormatInt(id, 10), false, true},
		"a string in IN, and read as one; a null, a Time")
	err = db.QueryRow("SELECT FROM orders WHERE id >= $1", hourAgo).Scan()
	is(err != nil && strings.Contains(err.Error(), "22P02"), true, "a time beside the key is refused")
	for _, key := range []interface{}{int64(big + 1), strconv.Itoa(big + 2)} {
		must(db.QueryRow("INSERT INTO orders VALUES ($1) RETURNING id", key).Scan(&text))
		is(text, fmt.Sprint(key), "a key as a value for the column")
	}
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
	must(read(&ids, "array_agg(id)"))
	is(ids, []int64{big}, "an array of snowflakes is one of int64")
	rows := [][]interface{}{{int64(5), "copied"}}
	copyRows := func() {
		_, err := conn.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id", "item"}, pgx.CopyFromRows(rows))
		must(err)
		must(conn.QueryRow(ctx, "DELETE FROM orders WHERE item = 'copied' RETURNING id").Scan(&id))
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
	fmt.Printf("# client: Go pgx %s\n", os.Getenv("PGX_VERSION"))
	sections()
	native()
	fmt.Printf("1..%d\n", count)
}
