// pgx.  To be run by clients.py.

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

var (
	background = context.Background()
	db         *pgx.Conn
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func execute(sql string, arguments ...any) {
	_, err := db.Exec(background, sql, arguments...)
	must(err)
}

// scan is where a key goes.
func scan(table string) any {
	if table == "bench_uuidv7" {
		return new([16]byte)
	}
	return new(int64)
}

func insert(table string) string {
	return "INSERT INTO " + table + " (n, item) VALUES ($1, $2) RETURNING id"
}

func single(table string, rows [][]any) {
	key := scan(table)
	for _, row := range rows {
		must(db.QueryRow(background, insert(table), row...).Scan(key))
	}
}

func batch(table string, rows [][]any) {
	key := scan(table)
	for first := 0; first < len(rows); first += 1000 {
		some := rows[first:min(first+1000, len(rows))]
		batch := &pgx.Batch{}
		for _, row := range some {
			batch.Queue(insert(table), row...)
		}
		results := db.SendBatch(background, batch)
		for range some {
			must(results.QueryRow().Scan(key))
		}
		must(results.Close())
	}
}

func copy(into string, columns []string, rows [][]any) {
	_, err := db.CopyFrom(background, pgx.Identifier{into}, columns, pgx.CopyFromRows(rows))
	must(err)
}

func staging(table string, rows [][]any) {
	execute("BEGIN")
	execute("CREATE TEMPORARY TABLE staging (n integer, item text) ON COMMIT DROP")
	copy("staging", []string{"n", "item"}, rows)
	execute("INSERT INTO " + table + " (n, item) SELECT n, item FROM staging")
	execute("COMMIT")
}

func ids(table string, rows [][]any) {
	found, err := db.Query(background, "SELECT snowflake_next_batch($1)", len(rows))
	must(err)
	minted, err := pgx.CollectRows(found, pgx.RowTo[int64])
	must(err)
	whole := make([][]any, len(rows))
	for i, row := range rows {
		whole[i] = []any{minted[i], row[0], row[1]}
	}
	copy(table, []string{"id", "n", "item"}, whole)
}

func arrays(table string, rows [][]any) {
	numbers, items := make([]int32, len(rows)), make([]string, len(rows))
	for i, row := range rows {
		numbers[i], items[i] = row[0].(int32), row[1].(string)
	}
	execute("INSERT INTO "+table+" (n, item) SELECT * FROM unnest($1::integer[], $2::text[])", numbers, items)
}

func main() {
	var err error

	db, err = pgx.Connect(background, "sslmode=disable")
	must(err)
	var oid uint32
	must(db.QueryRow(background, "SELECT 'snowflake'::regtype::oid").Scan(&oid))
	db.TypeMap().RegisterType(&pgtype.Type{Name: "snowflake", OID: oid, Codec: pgtype.Int8Codec{}})
	fmt.Println("ready")

	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		var way, table string
		var count int

		_, err := fmt.Sscan(requests.Text(), &way, &table, &count)
		must(err)
		execute("TRUNCATE " + table)
		rows := make([][]any, count)
		for n := range rows {
			rows[n] = []any{int32(n), fmt.Sprintf("the item of row %d", n)}
		}
		start := time.Now()
		switch way {
		case "single":
			single(table, rows)
		case "batch":
			batch(table, rows)
		case "copy":
			copy(table, []string{"n", "item"}, rows)
		case "staging":
			staging(table, rows)
		case "ids":
			ids(table, rows)
		case "arrays":
			arrays(table, rows)
		default:
			must(fmt.Errorf("no such way: %s", way))
		}
		fmt.Println(time.Since(start).Seconds())
	}
	must(db.Close(background))
}
