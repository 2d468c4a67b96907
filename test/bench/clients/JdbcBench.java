import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** PostgreSQL's JDBC driver.  To be run by clients.py. */
public class JdbcBench {
    private static Connection db;
    private static CopyManager copy;

    private static void execute(String sql) throws SQLException {
        try (Statement statement = db.createStatement()) {
            statement.execute(sql);
        }
    }

    private static void single(String table, String[] items) throws SQLException {
        try (PreparedStatement insert = db.prepareStatement(
                "INSERT INTO " + table + " (n, item) VALUES (?, ?) RETURNING id")) {
            for (int n = 0; n < items.length; n++) {
                insert.setInt(1, n);
                insert.setString(2, items[n]);
                try (ResultSet row = insert.executeQuery()) {
                    row.next();
                    row.getString(1);
                }
            }
        }
    }

    private static void batch(String table, String[] items) throws SQLException {
        try (PreparedStatement insert = db.prepareStatement("INSERT INTO " + table + " (n, item) VALUES (?, ?)")) {
            db.setAutoCommit(false);
            for (int n = 0; n < items.length; n++) {
                insert.setInt(1, n);
                insert.setString(2, items[n]);
                insert.addBatch();
                if (n % 1000 == 999 || n == items.length - 1) {
                    insert.executeBatch();
                    db.commit();
                }
            }
            db.setAutoCommit(true);
        }
    }

    private static void copy(String into, long[] ids, String[] items) throws SQLException, IOException {
        StringBuilder rows = new StringBuilder();

        for (int n = 0; n < items.length; n++) {
            if (ids != null)
                rows.append(ids[n]).append('\t');
            rows.append(n).append('\t').append(items[n]).append('\n');
        }
        copy.copyIn("COPY " + into + " FROM STDIN", new StringReader(rows.toString()), 65536);
    }

    private static void staging(String table, String[] items) throws SQLException, IOException {
        db.setAutoCommit(false);
        execute("CREATE TEMPORARY TABLE staging (n integer, item text) ON COMMIT DROP");
        copy("staging", null, items);
        execute("INSERT INTO " + table + " (n, item) SELECT n, item FROM staging");
        db.commit();
        db.setAutoCommit(true);
    }

    private static void ids(String table, String[] items) throws SQLException, IOException {
        long[] ids = new long[items.length];

        try (Statement statement = db.createStatement();
                ResultSet rows = statement.executeQuery("SELECT snowflake_next_batch(" + items.length + ")")) {
            for (int n = 0; rows.next(); n++)
                ids[n] = rows.getLong(1);
        }
        copy(table + " (id, n, item)", ids, items);
    }

    private static void arrays(String table, String[] items) throws SQLException {
        Integer[] numbers = new Integer[items.length];

        for (int n = 0; n < items.length; n++)
            numbers[n] = n;
        try (PreparedStatement insert = db.prepareStatement(
                "INSERT INTO " + table + " (n, item) SELECT * FROM unnest(?, ?)")) {
            insert.setArray(1, db.createArrayOf("integer", numbers));
            insert.setArray(2, db.createArrayOf("text", items));
            insert.execute();
        }
    }

    public static void main(String[] arguments) throws SQLException, IOException {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        String request;

        db = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT")
                + "/postgres?user=postgres&reWriteBatchedInserts=true");
        copy = db.unwrap(PGConnection.class).getCopyAPI();
        System.out.println("ready");
        while ((request = requests.readLine()) != null) {
            String[] words = request.split(" ");
            String table = words[1];
            String[] items = new String[Integer.parseInt(words[2])];

            execute("TRUNCATE " + table);
            for (int n = 0; n < items.length; n++)
                items[n] = "the item of row " + n;
            long start = System.nanoTime();
            switch (words[0]) {
                case "single": single(table, items); break;
                case "batch": batch(table, items); break;
                case "copy": copy(table + " (n, item)", null, items); break;
                case "staging": staging(table, items); break;
                case "ids": ids(table, items); break;
                case "arrays": arrays(table, items); break;
                default: throw new IllegalArgumentException(request);
            }
            System.out.println((System.nanoTime() - start) / 1e9);
        }
        db.close();
    }
}
