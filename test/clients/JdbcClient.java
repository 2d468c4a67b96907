import java.math.BigDecimal;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.TreeSet;
import org.postgresql.util.PGobject;

/** PostgreSQL's JDBC driver.  To be run by clients.pl; prints results in the TAP format. */
public class JdbcClient {
    /** Keys of rows of 2010 and of 2045. */
    private static final long OLD = (1L << 53) + 1;
    private static final long FAR = (1L << 62) + 1;
    private static int count;

    private interface Setter {
        void set(PreparedStatement statement) throws SQLException;
    }

    private interface Getter {
        Object get(ResultSet row) throws SQLException;
    }

    private interface Action {
        Object run() throws SQLException;
    }

    private static void is(Object got, Object expected, String name) {
        boolean same = Objects.equals(got, expected);

        count++;
        System.out.printf("%s %d - %s%n", same ? "ok" : "not ok", count, name);
        if (!same)
            System.out.printf("# got: %s%n# expected: %s%n", got, expected);
    }

    /** The action must fail with this SQLSTATE. */
    private static void fails(Action action, String state, String name) {
        try {
            is(action.run(), "an error " + state, name);
        } catch (SQLException e) {
            is(e.getSQLState(), state, name);
        }
    }

    /** The only row's columns, as the getter sees them. */
    private static Object row(Connection db, String sql, Setter parameters, Getter getter)
            throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            parameters.set(statement);
            try (ResultSet rows = statement.executeQuery()) {
                if (!rows.next())
                    throw new SQLException("no row: " + sql);
                Object result = getter.get(rows);
                if (rows.next())
                    throw new SQLException("more than one row: " + sql);
                return result;
            }
        }
    }

    private static List<Long> keys(ResultSet rows) throws SQLException {
        List<Long> keys = new ArrayList<>();

        while (rows.next())
            keys.add(rows.getLong("id"));
        return keys;
    }

    private static PGobject object(long id) throws SQLException {
        PGobject object = new PGobject();

        object.setType("snowflake");
        object.setValue(Long.toString(id));
        return object;
    }

    private static Connection connect(String options) throws SQLException {
        return DriverManager.getConnection(String.format("jdbc:postgresql://127.0.0.1:%s/%s?user=%s%s",
                System.getenv("PGPORT"), System.getenv("PGDATABASE"), System.getenv("PGUSER"), options));
    }

    /** What doc/clients/java.md shows, with parameters and results as text or in binary. */
    private static void test(String options, String how) throws SQLException {
        OffsetDateTime start = OffsetDateTime.now().minusHours(1), end = start.plusHours(2);

        try (Connection db = connect(options); Statement statement = db.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS orders CASCADE;"
                    + " CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);"
                    + " CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders");
            statement.execute("INSERT INTO orders VALUES (" + OLD + ", 1), (" + FAR + ", 2)");

            PreparedStatement insert, select;
            insert = db.prepareStatement("INSERT INTO orders (item) VALUES (?)", new String[] {"id"});
            insert.setString(1, "tea");
            insert.executeUpdate();
            ResultSet keys = insert.getGeneratedKeys();
            keys.next();
            long id = keys.getLong("id");
            for (int i = 0; i < 1000; i++) {
                insert.setString(1, "item " + i);
                insert.addBatch();
            }
            insert.executeBatch();
            List<Long> batch = keys(insert.getGeneratedKeys());
            List<Long> minted = new ArrayList<>(batch);
            minted.add(0, id);
            TreeSet<Long> sorted = new TreeSet<>(minted);
            List<Long> descending = new ArrayList<>(sorted.descendingSet());
            descending.add(0, FAR);
            is(minted, new ArrayList<>(sorted), how + "a batch, whose keys ascend");
            is(minted.size(), 1001, how + "and are 1,000");

            select = db.prepareStatement("SELECT * FROM orders WHERE id = ANY (?)");
            select.setObject(1, new long[] {id, batch.get(0)});
            is(new TreeSet<>(keys(select.executeQuery())), new TreeSet<>(minted.subList(0, 2)), how + "a list of keys");
            select = db.prepareStatement("SELECT * FROM orders ORDER BY id DESC LIMIT 20");
            List<Long> newest = keys(select.executeQuery());
            is(newest, descending.subList(0, 20), how + "newest first");
            select = db.prepareStatement("SELECT * FROM orders WHERE id < ? ORDER BY id DESC LIMIT 20");
            select.setLong(1, newest.get(19));
            is(keys(select.executeQuery()), descending.subList(20, 40), how + "the next page");
            select = db.prepareStatement("SELECT * FROM orders_view WHERE created_at >= ? AND created_at < ?");
            select.setObject(1, start);
            select.setObject(2, end);
            is(new TreeSet<>(keys(select.executeQuery())), sorted, how + "rows of a period, by times");
            select.setTimestamp(1, Timestamp.from(start.toInstant()));
            is(new TreeSet<>(keys(select.executeQuery())), sorted, how + "rows of a period, by a Timestamp");

            // reading
            String tea = "SELECT id FROM orders WHERE item = 'tea'";
            Setter none = s -> { };
            is(row(db, tea, none, r -> r.getLong(1)), id, how + "getLong()");
            is(row(db, tea, none, r -> r.getString(1)), Long.toString(id), how + "getString()");
            is(row(db, tea, none, r -> r.getBigDecimal(1)), new BigDecimal(id), how + "getBigDecimal()");
            is(row(db, tea, none, r -> r.getObject(1)), object(id), how + "getObject() is a PGobject");
            is(row(db, tea, none, r -> r.getMetaData().getColumnType(1)), Types.OTHER,
                    how + "the column has the JDBC type OTHER");
            fails(() -> row(db, tea, none, r -> r.getObject(1, Long.class)), "22023",
                    how + "getObject(1, Long.class) is refused by the driver");
            is(row(db, "SELECT id::bigint FROM orders WHERE item = 'tea'", none, r -> r.getObject(1, Long.class)), id,
                    how + "getObject(1, Long.class) of a bigint");
            is(row(db, "SELECT array_agg(id) FROM orders WHERE item = 'tea'", none,
                    r -> ((Object[]) r.getArray(1).getArray())[0]), object(id), how + "an array is one of PGobjects");
            is(row(db, "SELECT array_agg(id::bigint) FROM orders WHERE item = 'tea'", none,
                    r -> ((Long[]) r.getArray(1).getArray())[0]), id, how + "an array of bigint is one of Longs");
            is(row(db, "SELECT created_at FROM orders_view WHERE item = 'tea'", none,
                    r -> r.getObject(1, OffsetDateTime.class).isAfter(start)), true, how + "the time of the view");

            // filtering by ID
            finds(db, "id = ?", s -> s.setLong(1, id), how + "setLong()");
            finds(db, "id > ? AND item = 'tea'", s -> s.setInt(1, 5), how + "setInt()");
            finds(db, "id = ?", s -> s.setObject(1, id), how + "setObject() of a Long");
            finds(db, "id = ?", s -> s.setObject(1, object(id)), how + "setObject() of a PGobject");
            finds(db, "id = ?", s -> s.setObject(1, Long.toString(id), Types.OTHER),
                    how + "setObject() of a String as OTHER");
            finds(db, "id = ?::snowflake", s -> s.setString(1, Long.toString(id)), how + "setString() with a cast");
            refuses(db, "id = ?", s -> s.setString(1, Long.toString(id)), "42883", how + "setString() without a cast");
            finds(db, "id = ?::bigint", s -> s.setBigDecimal(1, new BigDecimal(id)),
                    how + "setBigDecimal() with a cast");
            refuses(db, "id = ?", s -> s.setBigDecimal(1, new BigDecimal(id)), "42883",
                    how + "setBigDecimal() without a cast");
            for (String type : new String[] {"bigint", "snowflake"}) {
                Array array = db.createArrayOf(type, new Long[] {5L, id});
                finds(db, "id = ANY (?)", s -> s.setArray(1, array), how + "setArray() of " + type);
            }

            // filtering by time
            Timestamp timestamp = Timestamp.from(start.toInstant());
            String since = "@@ id >= ? AND item = 'tea'";
            finds(db, since, s -> s.setTimestamp(1, timestamp), how + "setTimestamp() for the time of an ID");
            finds(db, since, s -> s.setObject(1, start), how + "setObject() for the time of an ID");
            refuses(db, "id >= ?", s -> s.setTimestamp(1, timestamp), "22P02", how + "setTimestamp() beside the key");
        }
    }

    private static void finds(Connection db, String condition, Setter parameters, String name) throws SQLException {
        is(row(db, "SELECT item FROM orders WHERE " + condition, parameters, r -> r.getString(1)), "tea", name);
    }

    private static void refuses(Connection db, String condition, Setter parameters, String state, String name) {
        fails(() -> row(db, "SELECT FROM orders WHERE " + condition, parameters, r -> 0), state, name + " is refused");
    }

    public static void main(String[] arguments) throws SQLException {
        int oid;

        test("", "text: ");
        // -1 has the driver prepare, and use binary where it can, from the first execution
        test("&prepareThreshold=-1&reWriteBatchedInserts=true", "binary: ");

        try (Connection db = connect("&stringtype=unspecified")) {
            System.out.printf("# client: JDBC %s, Java %s%n", db.getMetaData().getDriverVersion(),
                    System.getProperty("java.version"));
            is(row(db, "SELECT id FROM orders WHERE id = ?", s -> s.setString(1, Long.toString(OLD)),
                    r -> r.getLong(1)), OLD, "stringtype=unspecified: setString() without a cast");
            oid = (Integer) row(db, "SELECT 'snowflake'::regtype::oid::integer", s -> { }, r -> r.getInt(1));
        }

        // forcing results into binary, for a type that the driver does not know
        String old = "SELECT id FROM orders WHERE id = " + OLD;
        try (Connection db = connect("&prepareThreshold=-1&binaryTransferEnable=" + oid)) {
            is(row(db, old, s -> { }, r -> r.getString(1)), null, "binaryTransferEnable: getString() is null");
            fails(() -> row(db, old, s -> { }, r -> r.getLong(1)), "42821",
                    "binaryTransferEnable: getLong() is refused by the driver");
        }
        System.out.printf("1..%d%n", count);
    }
}
