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
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import org.postgresql.util.PGobject;

/** PostgreSQL's JDBC driver.  To be run by clients.pl. */
public class JdbcClient {
    private static final long BIG = (1L << 53) + 1;
    private static final OffsetDateTime HOUR_AGO = OffsetDateTime.now().minusHours(1);

    private interface Setter {
        void set(PreparedStatement statement) throws SQLException;
    }

    private interface Getter {
        Object get(ResultSet row) throws SQLException;
    }

    private interface Action {
        Object run() throws SQLException;
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

    private static void finds(Connection db, String condition, Setter parameters, String name)
            throws SQLException {
        Tap.is(row(db, "SELECT item FROM orders WHERE " + condition, parameters, r -> r.getString(1)),
                "default", name);
    }

    private static void counts(Connection db, String condition, Setter parameters, long expected,
            String name) throws SQLException {
        Tap.is(row(db, "SELECT count(*) FROM orders WHERE " + condition, parameters, r -> r.getLong(1)),
                expected, name);
    }

    /** The action must fail with this SQLSTATE. */
    private static void fails(Action action, String state, String name) {
        try {
            Tap.is(action.run(), "an error " + state, name);
        } catch (SQLException e) {
            Tap.is(e.getSQLState(), state, name);
        }
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

    /** What must work with parameters and results as text and in binary. */
    private static void test(String options, String how) throws SQLException {
        try (Connection db = connect(options); Statement statement = db.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS orders CASCADE");
            statement.execute("CREATE TABLE orders ("
                    + " id snowflake PRIMARY KEY DEFAULT snowflake_next(),"
                    + " ref bigint NOT NULL UNIQUE DEFAULT snowflake_next(),"
                    + " item text)");

            // minting
            long id, ref;
            try (PreparedStatement insert = db.prepareStatement(
                    "INSERT INTO orders (item) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
                insert.setString(1, "default");
                insert.executeUpdate();
                try (ResultSet keys = insert.getGeneratedKeys()) {
                    keys.next();
                    id = keys.getLong("id");
                    ref = keys.getLong("ref");
                }
            }
            Tap.ok(id > BIG && ref > id, how + "both columns get an ID by default, getGeneratedKeys()");

            // reading
            String select = "SELECT id FROM orders WHERE item = 'default'";
            Setter none = s -> { };
            Tap.is(row(db, select, none, r -> r.getLong(1)), id, how + "getLong()");
            Tap.is(row(db, select, none, r -> r.getString(1)), Long.toString(id), how + "getString()");
            Tap.is(row(db, select, none, r -> r.getBigDecimal(1)), new BigDecimal(id), how + "getBigDecimal()");
            Tap.is(row(db, select, none, r -> r.getObject(1)), object(id),
                    how + "getObject() is a PGobject");
            Tap.is(row(db, select, none, r -> r.getMetaData().getColumnType(1)), Types.OTHER,
                    how + "the column has the JDBC type OTHER");
            fails(() -> row(db, select, none, r -> r.getObject(1, Long.class)), "22023",
                    how + "getObject(1, Long.class) is refused by the driver");
            Tap.is(row(db, "SELECT id::bigint FROM orders", none, r -> r.getObject(1, Long.class)), id,
                    how + "getObject(1, Long.class) of a bigint");
            Tap.is(row(db, "SELECT array_agg(id) FROM orders", none,
                    r -> ((Object[]) r.getArray(1).getArray())[0]), object(id),
                    how + "an array is one of PGobjects");
            Tap.is(row(db, "SELECT array_agg(id::bigint) FROM orders", none,
                    r -> ((Long[]) r.getArray(1).getArray())[0]), id,
                    how + "an array of bigint is one of Longs");

            // filtering by ID
            finds(db, "id = ?", s -> s.setLong(1, id), how + "setLong()");
            finds(db, "id = ?", s -> s.setObject(1, id), how + "setObject() of a Long");
            finds(db, "id = ?", s -> s.setObject(1, object(id)), how + "setObject() of a PGobject");
            finds(db, "id = ?", s -> s.setObject(1, Long.toString(id), Types.OTHER),
                    how + "setObject() of a String as OTHER");
            finds(db, "id = ?::snowflake", s -> s.setString(1, Long.toString(id)),
                    how + "setString() with a cast");
            fails(() -> row(db, "SELECT FROM orders WHERE id = ?",
                    s -> s.setString(1, Long.toString(id)), r -> 0), "42883",
                    how + "setString() without a cast is refused");
            finds(db, "id = ?::bigint", s -> s.setBigDecimal(1, new BigDecimal(id)),
                    how + "setBigDecimal() with a cast");
            fails(() -> row(db, "SELECT FROM orders WHERE id = ?",
                    s -> s.setBigDecimal(1, new BigDecimal(id)), r -> 0), "42883",
                    how + "setBigDecimal() without a cast is refused");
            counts(db, "id = ?", s -> s.setInt(1, 5), 0, how + "setInt()");
            for (String type : new String[] {"bigint", "snowflake"}) {
                Array array = db.createArrayOf(type, new Long[] {5L, id});
                finds(db, "id = ANY (?)", s -> s.setArray(1, array), how + "setArray() of " + type);
            }
            finds(db, "id = ANY (?)", s -> s.setObject(1, new long[] {5L, id}),
                    how + "setObject() of a long[]");

            // filtering by time
            Timestamp timestamp = Timestamp.from(Instant.now().minusSeconds(3600));
            counts(db, "@@ id >= ?", s -> s.setTimestamp(1, timestamp), 1,
                    how + "setTimestamp() for the time of an ID");
            counts(db, "@@ id >= ?", s -> s.setObject(1, HOUR_AGO), 1,
                    how + "setObject() of a time for the time of an ID");
            fails(() -> row(db, "SELECT FROM orders WHERE id >= ?",
                    s -> s.setTimestamp(1, timestamp), r -> 0), "22P02",
                    how + "setTimestamp() beside the key is refused");

            // explicit IDs
            Tap.is(row(db, "INSERT INTO orders VALUES (?, ?) RETURNING id", s -> {
                s.setLong(1, BIG);
                s.setLong(2, BIG);
            }, r -> r.getLong(1)), BIG, how + "insert a long beyond 2^53");
        }
    }

    private static List<Long> keys(ResultSet rows) throws SQLException {
        List<Long> keys = new ArrayList<>();

        while (rows.next())
            keys.add(rows.getLong("id"));
        return keys;
    }

    private static List<Long> keys(PreparedStatement select) throws SQLException {
        return keys(select.executeQuery());
    }

    /** The form of all sections, after test(). */
    private static void sections(String options, String how) throws SQLException {
        OffsetDateTime start = HOUR_AGO, end = start.plusHours(2);

        try (Connection db = connect(options); Statement statement = db.createStatement()) {
            statement.execute("TRUNCATE orders; DROP VIEW IF EXISTS orders_view;"
                    + " CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders");
            statement.execute("INSERT INTO orders VALUES (" + Tap.OLD + ", 1), (" + Tap.FAR + ", 2)");

            PreparedStatement insert, select;
            insert = db.prepareStatement("INSERT INTO orders (item) VALUES (?)", new String[] {"id"});
            insert.setString(1, "tea");
            insert.executeUpdate();
            ResultSet keys = insert.getGeneratedKeys();
            keys.next();
            long id = keys.getLong("id");
            select = db.prepareStatement("SELECT id FROM orders WHERE id = ?");
            select.setLong(1, id);
            long back = keys(select).get(0);

            for (int i = 0; i < 1000; i++) {
                insert.setString(1, "item " + i);
                insert.addBatch();
            }
            insert.executeBatch();
            List<Long> batch = keys(insert.getGeneratedKeys());

            select = db.prepareStatement("SELECT * FROM orders WHERE id = ANY (?)");
            select.setObject(1, new long[] {id, batch.get(0)});
            List<Long> some = keys(select);
            select = db.prepareStatement("SELECT * FROM orders ORDER BY id DESC LIMIT 20");
            List<Long> newest = keys(select);
            select = db.prepareStatement("SELECT * FROM orders WHERE id < ? ORDER BY id DESC LIMIT 20");
            select.setLong(1, newest.get(19));
            List<Long> next = keys(select);
            select = db.prepareStatement("SELECT * FROM orders_view WHERE created_at >= ? AND created_at < ?");
            select.setObject(1, start);
            select.setObject(2, end);
            List<Long> period = keys(select);
            Tap.form(how, id, back, batch, some, newest, next, period);
            select.setTimestamp(1, Timestamp.from(start.toInstant()));
            Tap.is(keys(select), period, how + "rows of a period, by a Timestamp");
            try (ResultSet columns = db.getMetaData().getColumns(null, null, "orders_view", "created_at")) {
                columns.next();
                Tap.is(columns.getString("TYPE_NAME") + " " + columns.getInt("DATA_TYPE"),
                        "timestamptz " + Types.TIMESTAMP, how + "getColumns() says that it is a timestamptz");
            }
            Tap.is(row(db, "SELECT created_at FROM orders_view WHERE id = " + id, s -> { },
                    r -> r.getObject(1, OffsetDateTime.class).isAfter(start)), true, how + "the time of the view");
        }
    }

    public static void main(String[] arguments) throws SQLException {
        int oid;

        try (Connection db = connect("")) {
            System.out.printf("# client: JDBC %s, Java %s%n", db.getMetaData().getDriverVersion(),
                    System.getProperty("java.version"));
        }
        test("", "text: ");
        // -1 has the driver prepare, and use binary where it can, from the first execution
        test("&prepareThreshold=-1&reWriteBatchedInserts=true", "binary: ");

        try (Connection db = connect("&stringtype=unspecified")) {
            counts(db, "id = ?", s -> s.setString(1, Long.toString(BIG)), 1,
                    "stringtype=unspecified: setString() without a cast");
        }

        // forcing results into binary, for a type that the driver does not know
        try (Connection db = connect("")) {
            oid = (Integer) row(db, "SELECT 'snowflake'::regtype::oid::integer", s -> { },
                    r -> r.getInt(1));
        }
        try (Connection db = connect("&prepareThreshold=-1&binaryTransferEnable=" + oid)) {
            Tap.is(row(db, "SELECT id FROM orders WHERE id = " + BIG, s -> { }, r -> r.getString(1)), null,
                    "binaryTransferEnable: getString() is null");
            fails(() -> row(db, "SELECT id FROM orders WHERE id = " + BIG, s -> { }, r -> r.getLong(1)),
                    "42821", "binaryTransferEnable: getLong() is refused by the driver");
        }
        sections("", "form, text: ");
        sections("&prepareThreshold=-1&reWriteBatchedInserts=true", "form, binary: ");
        Tap.done();
    }
}
